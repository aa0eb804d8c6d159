"""The database, not the archive, proves that Annals wrote an archived day.

Archived rows that the database does not know enter the history only after an operator has accepted
them with `partitions adopt`. A manifest is not trusted: Annals checks the bytes and rows of a file.
"""

import json
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from msgspec.structs import replace

from annals.access.journal.actions import ActorKind
from annals.access.models import JournalEntry
from annals.configuration import env
from history.models import ArchivedDay
from history.retention.archive import manifest, provenance, read
from history.retention.archive.archive_check import check_archived_days, list_days_to_check
from history.retention.archive.store import ArchiveStore
from history.retention.archive.write import DayArchiver, archive_day
from history.store.days.canonical import Connection
from tests.db.commands import run_command
from tests.db.partitioned import (
    TABLE,
    connect_plainly,
    execute_plans,
    insert_version,
    list_partition_names,
    make_policy,
    run_partitions,
)
from tests.db.test_archive_generations import (
    FOLDER,
    NAME,
    NOON,
    OLD,
    PRODUCT,
    SOURCE,
    archive_rows_of_day,
    fill,
    list_archived_ids,
    make_ids,
    read_failure,
    run_maintain,
)

pytestmark = pytest.mark.usefixtures("tables")


@pytest.fixture
def archive_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Configure an archive for the commands, and return its directory."""
    path = tmp_path / "archive"
    new_settings = env.read_settings(
        {"ANNALS_ARCHIVE_URL": str(path), "ANNALS_RETENTION_DAYS": "3"}
    )
    monkeypatch.setattr(settings, "ANNALS", new_settings)
    return path


@pytest.fixture
def store(archive_path: Path) -> ArchiveStore:
    return ArchiveStore(str(archive_path))


def write_unrecorded_day(store: ArchiveStore, *ids: str) -> None:
    """Write rows with these ids to the archive for the day OLD, without a record in the database.

    Everybody with access to the files of the archive can do this.
    """
    with connect_plainly() as plain:
        fill(plain, *ids)
        archive_day(plain, store, PRODUCT, OLD, SOURCE)
        plain.execute(f"DROP TABLE {NAME}")


def replace_by_unrecorded_day(store: ArchiveStore, *ids: str) -> None:
    """Replace the archived files of the day OLD by files that have rows with these ids.

    The database has no record of the new files.
    """
    for name in store.list_names(FOLDER):
        store.delete(name)
    write_unrecorded_day(store, *ids)


def read_files(store: ArchiveStore) -> dict[str, bytes | None]:
    return {name: store.read(name) for name in store.list_names(FOLDER)}


def read_refusal(store: ArchiveStore) -> str:
    """Return why `maintain` does not archive and drop the day, and check that no file changes."""
    before = read_files(store)
    reason = read_failure(store)
    assert read_files(store) == before
    return reason


def run_and_join_output(*arguments: str) -> tuple[int, str]:
    """Run `annals partitions`, and return the exit code and all output of the command."""
    code, out, err = run_partitions(*arguments)
    return code, out + err


def run_for_day(action: str, *more: str) -> tuple[int, str]:
    """Run a `partitions` command for the day OLD of applications."""
    return run_and_join_output(action, str(OLD), "--entity", "product-instance", *more)


def list_ids(table: str = NAME) -> list[str]:
    with connect_plainly() as plain:
        return [id_ for (id_,) in plain.execute(f"SELECT id FROM {table} ORDER BY id")]


def test_maintain_does_not_drop_day_when_annals_did_not_record_the_archived_files(
    store: ArchiveStore, plain: Connection
) -> None:
    write_unrecorded_day(store, "forged")
    fill(plain, *make_ids("b", 12))
    reason = read_refusal(store)
    assert "1 row" in reason
    assert "partitions adopt" in reason
    assert "partitions forget" in reason
    assert not ArchivedDay.objects.exists()


def test_maintain_does_not_drop_day_when_somebody_added_a_row_to_the_archived_files(
    store: ArchiveStore,
) -> None:
    archive_rows_of_day(store, *make_ids("b", 12))
    recorded = ArchivedDay.objects.get()
    write_unrecorded_day(store, "forged")  # now in the archive, but not recorded in the database
    with connect_plainly() as plain:
        fill(plain, "late")
    assert "1 row" in read_refusal(store)
    again = ArchivedDay.objects.get()
    assert (again.rows, again.digest) == (recorded.rows, recorded.digest)


def test_day_is_not_dropped_when_somebody_replaced_the_archived_rows_of_the_day(
    store: ArchiveStore, plain: Connection
) -> None:
    """The table also has the row that somebody put into the archive.

    So the table does not contradict the archive, but the row that Annals archived is in neither.
    """
    archive_rows_of_day(store, "kept")
    replace_by_unrecorded_day(store, "late")
    fill(plain, "late", "later")
    read_refusal(store)


def test_next_run_accepts_archived_day_that_a_killed_run_did_not_record(
    store: ArchiveStore, plain: Connection
) -> None:
    fill(plain, *make_ids("b", 12))
    archive_day(plain, store, PRODUCT, OLD, SOURCE)
    insert_version(plain, NOON + timedelta(hours=1), "late")
    assert NAME in run_maintain(store)
    assert list_archived_ids(store) == [*make_ids("b", 12), "late"]
    assert ArchivedDay.objects.get().rows == 13


def test_partitions_adopt_command_accepts_archived_rows_unknown_to_the_restored_database(
    store: ArchiveStore,
) -> None:
    with connect_plainly() as plain:
        archive_rows_of_day(store, *make_ids("b", 12))
        ArchivedDay.objects.all().delete()  # as if the database was restored from an earlier backup
        fill(plain, *make_ids("b", 9), "late")
    assert "3 rows" in read_refusal(store)
    code, output = run_for_day("adopt", "--why", "backup of Monday")
    assert (code, output) == (0, f"Accepted the archived rows of {TABLE} {OLD}: 12 rows.\n")
    assert JournalEntry.objects.get().reason == "backup of Monday"
    assert [version.id for version in read.read_versions(store, PRODUCT, "b007")] == ["b007"]
    assert NAME in run_maintain(store)
    assert list_archived_ids(store) == [*make_ids("b", 12), "late"]


@pytest.mark.parametrize("is_recorded", [False, True])
def test_day_is_not_dropped_when_archive_has_forged_rows_and_manifest_has_digest_of_real_rows(
    store: ArchiveStore, is_recorded: bool
) -> None:
    """Somebody who knows the real rows can compute the digest of these rows."""
    with connect_plainly() as plain:
        fill(plain, *make_ids("b", 12))
        true = archive_day(plain, store, PRODUCT, OLD, SOURCE)
        if is_recorded:
            provenance.note_archived_day(true)
        plain.execute(f"DROP TABLE {NAME}")
        replace_by_unrecorded_day(store, *make_ids("f", 12))
        forged = manifest.load_manifest(store, TABLE, OLD)
        assert forged is not None
        manifest.save_manifest(store, replace(forged, digest=true.digest))
        fill(plain, *make_ids("b", 12))
        for late in ((), ("late",)):
            fill(plain, *late)
            assert "differ from those that the manifest names" in read_refusal(store)
            assert list_ids() == [*make_ids("b", 12), *late]


def test_partitions_commands_adopt_restore_and_forget_are_entered_in_access_journal(
    store: ArchiveStore,
) -> None:
    with connect_plainly() as plain:
        archive_rows_of_day(store, *make_ids("b", 3))
        plain.execute("DELETE FROM access_journal")
        ArchivedDay.objects.all().delete()
        for action, *options in (("adopt", "--why", "a"), ("restore",), ("forget", "--why", "f")):
            assert run_for_day(action, *options)[0] == 0
        rows = plain.execute(
            "SELECT actor, query, reason, entity FROM access_journal ORDER BY at"
        ).fetchall()
        assert rows == [
            (ActorKind.OPERATOR, f"partitions {action} {OLD}", reason, "product-instance")
            for action, reason in (("adopt", "a"), ("restore", ""), ("forget", "f"))
        ]


def test_partitions_commands_restore_and_forget_do_nothing_when_journal_cannot_be_written(
    store: ArchiveStore, plain: Connection
) -> None:
    archive_rows_of_day(store, *make_ids("b", 3))
    before = read_files(store)
    plain.execute("ALTER TABLE access_journal RENAME TO taken_away")
    try:
        for action, *options in (("restore",), ("forget", "--why", "f")):
            code, output = run_for_day(action, *options)
            assert code == 2
            assert "nothing was done" in output
    finally:
        plain.execute("ALTER TABLE taken_away RENAME TO access_journal")
    assert read_files(store) == before
    assert NAME not in list_partition_names()


def damage(store: ArchiveStore) -> None:
    day_manifest = manifest.load_manifest(store, TABLE, OLD)
    assert day_manifest is not None
    store.put(day_manifest.files[0].name, b"damaged")


@pytest.mark.parametrize(
    "spoil, says",
    [
        (lambda store: manifest.delete_manifest(store, TABLE, OLD), "is not in the archive"),
        (damage, "has changed in the archive"),
    ],
)
def test_partitions_adopt_command_refuses_damaged_archived_day(
    store: ArchiveStore, spoil: Callable[[ArchiveStore], None], says: str
) -> None:
    write_unrecorded_day(store, *make_ids("b", 3))
    spoil(store)
    code, output = run_for_day("adopt", "--why", "test")
    assert code == 2
    assert says in output
    assert not ArchivedDay.objects.exists()


def test_partitions_adopt_command_refuses_archived_day_with_fewer_rows_than_recorded(
    store: ArchiveStore,
) -> None:
    archive_rows_of_day(store, *make_ids("b", 12))
    assert "already noted these rows" in run_for_day("adopt", "--why", "test")[1]
    replace_by_unrecorded_day(store, *make_ids("b", 3))
    code, output = run_for_day("adopt", "--why", "test")
    assert code == 2
    assert "12" in output
    assert ArchivedDay.objects.get().rows == 12


def test_commands_restore_and_export_refuse_archived_rows_that_annals_did_not_record(
    store: ArchiveStore, tmp_path: Path
) -> None:
    archive_rows_of_day(store, *make_ids("b", 3))
    write_unrecorded_day(store, "forged")
    code, output = run_for_day("restore")
    assert code == 2
    assert "1 row" in output
    assert NAME not in list_partition_names()
    ended = run_command(
        "export",
        "--entity",
        "product-instance",
        "--from",
        str(OLD),
        "--format",
        "jsonl",
        "--to",
        str(OLD + timedelta(days=1)),
        "--output",
        str(tmp_path / "export"),
    )
    assert ended.code == 2
    assert not list((tmp_path / "export").glob("*.jsonl"))
    with connect_plainly() as plain:
        fill(plain, "late")
    assert run_for_day("restore")[0] == 2
    assert list_ids() == ["late"]


def test_archive_is_read_only_from_files_that_the_database_lists(store: ArchiveStore) -> None:
    archive_rows_of_day(store, *make_ids("b", 3))
    replace_by_unrecorded_day(store, "b001x", *make_ids("b", 3))
    with pytest.raises(FileNotFoundError):
        read.read_versions(store, PRODUCT, "b001")


def test_maintain_does_not_drop_archived_day_when_archive_url_is_not_set(
    store: ArchiveStore, monkeypatch: pytest.MonkeyPatch, plain: Connection
) -> None:
    """The setting can be missing in the environment of a cron job."""
    archive_rows_of_day(store, *make_ids("b", 3))
    fill(plain, *make_ids("c", 2))
    monkeypatch.setattr(settings, "ANNALS", env.read_settings({"ANNALS_RETENTION_DAYS": "3"}))
    code, output = run_and_join_output("maintain", "--force")
    assert code == 2
    assert "ANNALS_ARCHIVE_URL is not set" in output
    assert list_ids() == make_ids("c", 2)
    assert run_and_join_output("maintain", "--force", "--without-archive")[0] == 0
    assert plain.execute("SELECT to_regclass(%s)", [NAME]).fetchone() == (None,)


IDS = ("a1", "b2", "c3")


class InterruptedArchiver(DayArchiver):
    """An archiver that archives and records a day, and fails before the day is dropped."""

    def archive(self, connection: Connection, table: str, day: date) -> None:
        super().archive(connection, table, day)
        raise OSError("the run ends here")


@pytest.fixture
def written(store: ArchiveStore, archive_path: Path, plain: Connection) -> Path:
    """Return the folder of a day that is archived and not yet dropped."""
    fill(plain, *IDS)
    execute_plans(make_policy(), archiver=InterruptedArchiver(store))
    return archive_path / FOLDER


def change_manifest(folder: Path, **changed: Any) -> None:
    """Change fields of the manifest in a folder.

    A field that is not in the manifest itself is changed in the manifest's entry of the first file.
    """
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    for name, value in changed.items():
        (content if name in content else content["files"][0])[name] = value
    path.write_text(json.dumps(content))


def count_archived_rows(store: ArchiveStore) -> list[int]:
    return [len(read.read_versions(store, PRODUCT, id_)) for id_ in IDS]


def find_fault(store: ArchiveStore) -> str:
    (checked,) = check_archived_days(store, list_days_to_check())
    return checked.fault or ""


@pytest.mark.parametrize("is_recorded", [True, False])
@pytest.mark.parametrize(
    "changed",
    [{"first": "zzz", "last": "zzz"}, {"archivedAt": "2999-01-01T00:00:00Z"}],
)
def test_forged_manifest_hides_no_archived_row(
    store: ArchiveStore, written: Path, changed: Mapping[str, Any], is_recorded: bool
) -> None:
    archived_at = ArchivedDay.objects.values_list("archived_at", flat=True).get()
    if not is_recorded:
        ArchivedDay.objects.all().delete()  # as if the run was killed before it recorded the day
    change_manifest(written, **changed)
    assert NAME in run_maintain(store)
    assert NAME not in list_partition_names()
    assert count_archived_rows(store) == [1, 1, 1]
    assert find_fault(store) == ""
    assert ArchivedDay.objects.get().archived_at.year == archived_at.year


def test_verify_reports_archive_file_that_differs_from_its_record_in_the_database(
    store: ArchiveStore, written: Path
) -> None:
    assert NAME in run_maintain(store)
    (file,) = ArchivedDay.objects.get().files
    ArchivedDay.objects.update(files=[{**file, "last": "a1"}])
    assert "than the database" in find_fault(store)


@pytest.mark.parametrize("forged", ["../../elsewhere.parquet", "/etc/passwd", "part.txt", None])
def test_manifest_is_refused_when_a_file_is_in_another_folder_or_listed_twice(
    store: ArchiveStore, written: Path, forged: str | None
) -> None:
    if forged is None:
        files = json.loads((written / "manifest.json").read_text())["files"]
        change_manifest(written, files=files * 2, rows=6)
    else:
        change_manifest(written, name=f"{FOLDER}/{forged}")
    assert "is in another folder or listed twice" in read_failure(store)
    assert run_for_day("forget", "--why", "nobody can use it")[0] == 0
    assert NAME in run_maintain(store)
    assert count_archived_rows(store) == [1, 1, 1]
