"""A day that is archived again is merged with the archived rows of the day: no row is lost."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO

import pytest
from psycopg import sql

from history.kinds.entities import BY_NAME
from history.models import ArchivedDay
from history.retention.archive import (
    manifest,
    parquet,
    read,
    write,
)
from history.retention.archive.manifest import Manifest
from history.retention.archive.operator_decisions import forget_day
from history.retention.archive.restore import restore_day
from history.retention.archive.store import ArchiveError, ArchiveStore
from history.retention.archive.write import DayArchiver, archive_day
from history.store.days import days
from history.store.days.canonical import Connection
from tests.db.partitioned import (
    TABLE,
    connect_plainly,
    execute_plans,
    get_day,
    insert_version,
    list_partition_names,
    make_policy,
)

pytestmark = pytest.mark.usefixtures("tables")

PRODUCT = BY_NAME["product-instance"]
OLD = get_day(-5)
NAME = days.build_partition_name(TABLE, OLD)
SOURCE = sql.Identifier(NAME)
NOON = datetime(OLD.year, OLD.month, OLD.day, 12, tzinfo=UTC)
FOLDER = f"{TABLE}/{OLD}"


@pytest.fixture
def store(tmp_path: Path) -> ArchiveStore:
    return ArchiveStore(str(tmp_path / "archive"))


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few rows fill several files and row groups."""
    monkeypatch.setattr(parquet, "GROUP_ROWS", 4)
    monkeypatch.setattr(write, "FILE_ROWS", 10)


def fill(plain: Connection, *ids: str, version: int = 1) -> None:
    days.create_partition(plain, TABLE, OLD)
    for number, id_ in enumerate(ids):
        insert_version(plain, NOON + timedelta(seconds=number), id_, version)


def make_ids(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number:03}" for number in range(count)]


def list_archived_ids(store: ArchiveStore) -> list[str]:
    """Return the ids of the archived rows of the day OLD, in the order of the manifest."""
    day_manifest = manifest.load_manifest(store, TABLE, OLD)
    return (
        []
        if day_manifest is None
        else [row[0] for row in manifest.read_checked_rows(store, day_manifest)]
    )


def list_files(store: ArchiveStore) -> list[str]:
    return sorted(name.removeprefix(f"{FOLDER}/") for name in store.list_names(FOLDER))


def list_expected_files(store: ArchiveStore) -> list[str]:
    """Return the names of the manifest of the day OLD and of all files that the manifest lists."""
    day_manifest = manifest.load_manifest(store, TABLE, OLD)
    assert day_manifest is not None
    return sorted(["manifest.json", *(Path(file.name).name for file in day_manifest.files)])


def run_maintain(store: ArchiveStore, keep: int = 3) -> list[str]:
    outcome = execute_plans(make_policy(keep=keep), archiver=DayArchiver(store))
    assert outcome.exit_code == 0, outcome
    return outcome.dropped


def read_failure(store: ArchiveStore, name: str = NAME) -> str:
    """Archive and drop days like `maintain`, and return the reason why this fails for one day.

    Check that this day is the partition `name` and was not dropped.
    """
    outcome = execute_plans(make_policy(), archiver=DayArchiver(store))
    [(failed, reason)] = outcome.broken
    assert failed == name
    assert name in list_partition_names()
    return str(reason)


def archive_rows_of_day(store: ArchiveStore, *ids: str) -> None:
    """Store rows with these ids in the day OLD, then archive and drop this day, like `maintain`."""
    with connect_plainly() as plain:
        fill(plain, *ids)
    assert NAME in run_maintain(store)


def test_archived_rows_survive_changes_of_retention(store: ArchiveStore) -> None:
    with connect_plainly() as plain:
        fill(plain, *make_ids("a", 25))
    assert NAME in run_maintain(store)
    before = list_files(store)
    run_maintain(store, keep=7)
    assert NAME in list_partition_names()
    assert NAME in run_maintain(store)
    assert list_archived_ids(store) == make_ids("a", 25)
    assert ArchivedDay.objects.get(table=TABLE, day=OLD).rows == 25
    assert list_files(store) == before


def test_archiving_a_day_again_adds_its_new_rows_to_the_archived_rows(
    store: ArchiveStore, plain: Connection
) -> None:
    archive_rows_of_day(store, *make_ids("b", 25))
    first = list_files(store)
    fill(plain, *make_ids("a", 11), *make_ids("c", 3))
    assert NAME in run_maintain(store)
    expected_ids = [*make_ids("a", 11), *make_ids("b", 25), *make_ids("c", 3)]
    assert list_archived_ids(store) == expected_ids
    archived_day = ArchivedDay.objects.get(table=TABLE, day=OLD)
    assert archived_day.rows == len(expected_ids)
    assert list_files(store) == list_expected_files(store)
    assert set(first) & set(list_files(store)) == {"manifest.json"}
    assert [version.id for version in read.read_versions(store, PRODUCT, "b007")] == ["b007"]
    restored_day = restore_day(plain, store, PRODUCT, OLD)
    assert (restored_day.rows, restored_day.digest, restored_day.generation) == (
        len(expected_ids),
        archived_day.digest,
        2,
    )


def test_merge_is_refused_and_names_row_that_differs_in_table_and_archive(
    store: ArchiveStore,
) -> None:
    with connect_plainly() as plain:
        archive_rows_of_day(store, *make_ids("b", 12))
        fill(plain, *make_ids("b", 12))
        plain.execute(f"UPDATE {NAME} SET author = 'x' WHERE id = 'b003'")
        reason = read_failure(store)
        assert "b003" in reason
        assert "partitions forget" in reason
        assert list_archived_ids(store) == make_ids("b", 12)
        assert forget_day(store, TABLE, OLD) == 12
        assert NAME in run_maintain(store)
        assert list_archived_ids(store) == make_ids("b", 12)
        assert [v.author for v in read.read_versions(store, PRODUCT, "b003")] == ["x"]


def test_forget_removes_day_from_archive(store: ArchiveStore) -> None:
    archive_rows_of_day(store, *make_ids("b", 12))
    assert forget_day(store, TABLE, OLD) == 12
    assert list_files(store) == []
    assert not ArchivedDay.objects.exists()
    assert read.read_versions(store, PRODUCT, "b003") == []
    with pytest.raises(ArchiveError, match="not in the archive"):
        forget_day(store, TABLE, OLD)


class KilledRunError(BaseException):
    """Raised by FragileArchiveStore, to simulate a killed process."""


class FragileArchiveStore(ArchiveStore):
    """An archive store that raises KilledRunError after `changes` writes or deletions of files."""

    def __init__(self, url: str, changes: int) -> None:
        super().__init__(url)
        self.left = changes

    def _change(self) -> None:
        if self.left == 0:
            raise KilledRunError
        self.left -= 1

    @contextmanager
    def write(self, name: str) -> Iterator[IO[bytes]]:
        self._change()
        with super().write(name) as sink:
            yield sink

    def put(self, name: str, data: bytes) -> None:
        self._change()
        super().put(name, data)

    def delete(self, name: str) -> None:
        self._change()
        super().delete(name)


def test_interrupted_merge_loses_no_row(tmp_path: Path, plain: Connection) -> None:
    expected_ids = [*make_ids("a", 11), *make_ids("b", 25)]
    ended = 0
    for changes in range(100):
        url = str(tmp_path / str(changes))
        store, fragile = ArchiveStore(url), FragileArchiveStore(url, changes)
        ArchivedDay.objects.all().delete()  # the rows of the previous attempt
        fill(plain, *make_ids("b", 25))
        run_maintain(store)
        fill(plain, *make_ids("a", 11))
        try:
            execute_plans(make_policy(), archiver=DayArchiver(fragile))
        except KilledRunError:
            ended += 1
        else:
            break
        assert set(list_archived_ids(store)) >= set(make_ids("b", 25))
        assert [v.id for v in read.read_versions(store, PRODUCT, "b007")] == ["b007"]
        assert NAME in run_maintain(store)
        assert list_archived_ids(store) == expected_ids
        assert list_files(store) == list_expected_files(store)
        assert ArchivedDay.objects.get(table=TABLE, day=OLD).rows == len(expected_ids)
    assert ended > 8


def test_archived_day_is_forgotten_when_interrupted_forget_day_is_repeated(tmp_path: Path) -> None:
    ended = 0
    for changes in range(20):
        url = str(tmp_path / str(changes))
        store = ArchiveStore(url)
        archive_rows_of_day(store, *make_ids("b", 12))
        try:
            forget_day(FragileArchiveStore(url, changes), TABLE, OLD)
        except KilledRunError:
            ended += 1
        else:
            break
        forget_day(store, TABLE, OLD)
        assert list_files(store) == []
        assert not ArchivedDay.objects.exists()
    assert ended > 3


def test_run_that_was_frozen_does_not_change_archive_files_of_later_run(
    store: ArchiveStore,
) -> None:
    """The first process freezes during a write. PostgreSQL ends the session of this process, which
    frees the run lock. A second process archives the day. Then the first process continues."""

    class FrozenArchiveStore(ArchiveStore):
        @contextmanager
        def write(self, name: str) -> Iterator[IO[bytes]]:
            with super().write(name) as sink:
                yield sink
            if not woken:
                woken.append(name)
                with connect_plainly() as other_session:
                    other_session.execute(
                        "SELECT pg_terminate_backend(%s::int)", [first.info.backend_pid]
                    )
                    insert_version(other_session, NOON, "late")
                    manifests.append(archive_day(other_session, store, PRODUCT, OLD, SOURCE))
                    days.drop_partition(other_session, TABLE, OLD)

    woken: list[str] = []
    manifests: list[Manifest] = []
    with connect_plainly() as first:
        fill(first, *make_ids("b", 9))
        with pytest.raises(Exception, match=r"terminat|closed|lost"):
            archive_day(first, FrozenArchiveStore(store.url), PRODUCT, OLD, SOURCE)
    assert manifest.load_manifest(store, TABLE, OLD) == manifests[0]
    assert list_archived_ids(store) == [*make_ids("b", 9), "late"]


def test_archiving_fails_when_archive_lacks_rows_that_were_archived_before(
    tmp_path: Path, plain: Connection
) -> None:
    fill(plain, *make_ids("b", 12))
    run_maintain(ArchiveStore(str(tmp_path / "one")))
    fill(plain)
    reason = read_failure(ArchiveStore(str(tmp_path / "other")))
    assert "12 rows" in reason
    assert "ANNALS_ARCHIVE_URL" in reason


def test_archiving_fails_when_archive_lacks_days_that_were_archived_before(
    tmp_path: Path,
) -> None:
    """A volume that is not mounted looks like an empty archive. Files that are written to an empty
    mount point get lost."""
    folder, away = tmp_path / "archive", tmp_path / "away"
    store, second_day = ArchiveStore(str(folder)), days.build_partition_name(TABLE, get_day(-4))
    with connect_plainly() as plain:
        archive_rows_of_day(store, *make_ids("b", 12))
        days.create_partition(plain, TABLE, get_day(-4))
        insert_version(plain, NOON + timedelta(days=1))
        folder.rename(away)
        for exists in (False, True):
            if exists:
                folder.mkdir()
            assert "ANNALS_ARCHIVE_URL" in read_failure(store, second_day)
        folder.rmdir()
        away.rename(folder)
        assert run_maintain(store) == [second_day]


def damage(store: ArchiveStore, day_manifest: Manifest) -> None:
    with store.write(day_manifest.files[0].name) as sink:
        sink.write(b"damaged")


def test_damaged_archive_files_are_rewritten_when_table_has_all_rows(store: ArchiveStore) -> None:
    with connect_plainly() as plain:
        fill(plain, *make_ids("b", 25))
        damage(store, archive_day(plain, store, PRODUCT, OLD, SOURCE))
    assert NAME in run_maintain(store)
    assert list_archived_ids(store) == make_ids("b", 25)
    assert list_files(store) == list_expected_files(store)


@pytest.mark.parametrize("back", [0, 3])
def test_recreated_day_is_not_dropped_when_its_archive_files_are_damaged(
    store: ArchiveStore, back: int
) -> None:
    """The table lacks archived rows, so the files cannot be written again from the table."""
    with connect_plainly() as plain:
        archive_rows_of_day(store, *make_ids("b", 25))
        day_manifest = manifest.load_manifest(store, TABLE, OLD)
        assert day_manifest is not None
        damage(store, day_manifest)
        fill(plain, *make_ids("a", back))
    assert day_manifest.files[0].name in read_failure(store)
    assert manifest.load_manifest(store, TABLE, OLD) == day_manifest


def test_archived_version_is_readable_while_late_rows_are_merged_into_the_archive(
    store: ArchiveStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader begins with a list of files from before the merge, which replaces the files."""
    archive_rows_of_day(store, *make_ids("b", 25))
    listed = read._list_files
    stale = listed(PRODUCT, "b007")
    archive_rows_of_day(store, *make_ids("a", 11))
    answers = [stale]
    monkeypatch.setattr(
        read, "_list_files", lambda *args: answers.pop() if answers else listed(*args)
    )
    assert [version.id for version in read.read_versions(store, PRODUCT, "b007")] == ["b007"]
    assert not answers
