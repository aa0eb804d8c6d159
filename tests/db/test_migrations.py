"""The migrations say what the models say, and an earlier release can work after them."""

import pytest
from django.core.management import call_command
from django.db.migrations import operations
from django.db.migrations.loader import MigrationLoader

from history.schema import NEEDS_STOP

# The newest of each app when this rule was made; what came before is not changed any more.
BEFORE_THE_RULE = {"history": 11, "ingest": 5, "access": 6}
TAKE_AWAY = (
    operations.RemoveField,
    operations.RenameField,
    operations.RenameModel,
    operations.DeleteModel,
    operations.AlterModelTable,
)


@pytest.mark.django_db
def test_no_model_differs_from_its_migrations(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        call_command("makemigrations", check=True, dry_run=True)
    except SystemExit:
        pytest.fail(f"models without a migration:\n{capsys.readouterr().out}")


def breaks(operation: object) -> bool:
    """Whether processes of the release before cannot read or add rows after it."""
    if isinstance(operation, operations.AddField):
        field = operation.field
        return not (field.null or field.has_db_default() or field.many_to_many)
    return isinstance(operation, TAKE_AWAY)


def test_a_migration_that_an_earlier_release_cannot_work_after_says_so_in_its_name() -> None:
    found = MigrationLoader(None, ignore_no_migrations=True).disk_migrations
    breaking = {
        (app, name)
        for (app, name), migration in found.items()
        if app in BEFORE_THE_RULE and any(map(breaks, migration.operations))
    }
    assert ("history", "0010_search_key_without_application") in breaking
    assert ("access", "0005_who_in_particular") in breaking
    unsaid = {
        f"{app}.{name}"
        for app, name in breaking
        if int(name[:4]) > BEFORE_THE_RULE[app] and not name.endswith(NEEDS_STOP)
    }
    assert unsaid == set(), (
        "give new columns a db_default, remove old ones a release later, or end the name with "
        + NEEDS_STOP
    )
