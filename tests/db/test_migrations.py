"""Migrations match the models, and the previous release can work after them."""

import pytest
from django.core.management import call_command
from django.db.migrations import operations
from django.db.migrations.loader import MigrationLoader

APPS = {"history", "ingest", "access"}
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


def is_breaking(operation: object) -> bool:
    """Return whether processes of the previous release fail to read or add rows after this
    operation."""
    if isinstance(operation, operations.AddField):
        field = operation.field
        return not (field.null or field.has_db_default() or field.many_to_many)
    return isinstance(operation, TAKE_AWAY)


def test_earlier_release_can_work_after_each_migration() -> None:
    migrations = MigrationLoader(None, ignore_no_migrations=True).disk_migrations
    problems = {
        f"{app}.{name}"
        for (app, name), migration in migrations.items()
        if app in APPS and not migration.initial
        if any(map(is_breaking, migration.operations))
    }
    assert problems == set(), "give new columns a db_default, remove old ones a release later"
