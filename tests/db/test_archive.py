"""Days are written to the archive, checked there, and restored row for row."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any

import pytest
from django.conf import settings

from annals.configuration import env
from history.kinds.entities import BY_NAME, ENTITIES
from history.models import ArchivedDay
from history.retention.archive import (
    manifest,
    parquet,
    read,
    write,
)
from history.retention.archive.restore import restore_day
from history.retention.archive.store import ArchiveError, ArchiveStore
from history.retention.archive.write import DayArchiver, archive_day
from history.retention.plan import build_plans
from history.store.days import days
from history.store.days.canonical import Connection, compute_digest, encode_row
from history.store.days.days import release_day
from history.timeline.sources.archive import ArchiveSource
from tests.db import simulated
from tests.db.partitioned import (
    TABLE,
    connect_plainly,
    count_stored,
    execute_plans,
    insert_version,
    list_partition_names,
    make_policy,
    retire_all_topics,
    run_partitions,
)
from tests.db.test_archive_generations import NAME, OLD, PRODUCT, SOURCE, store

pytestmark = pytest.mark.usefixtures("tables")

__all__ = ["store"]

TASK = BY_NAME["product-task"]

HARD = [
    '{"n": 12345678901234567890.10, "e": 1e400}',
    "null",
    '{"кириллица": "значение, с \\"кавычками\\" и \\\\n", "emoji": "🏦"}',
    '[1, 1.0, true, "\\u0001"]',
]


COLUMNS = "id, version, data, updated_at, client_id, author, type"


def fill(plain: Connection, rows: int) -> None:
    """Insert rows with ids and values that an archive could easily corrupt."""
    days.create_partition(plain, TABLE, OLD)
    noon = datetime(OLD.year, OLD.month, OLD.day, 12, tzinfo=UTC)
    with plain.cursor() as cursor, cursor.copy(f"COPY {NAME} ({COLUMNS}) FROM STDIN") as copy:
        copy.set_types(["varchar", "int4", "jsonb", "timestamptz", "varchar", "varchar", "int4"])
        for number in range(rows):
            id_ = f"{'aБzЯ'[number % 4]}{number // 12:04}"
            moment = noon + timedelta(microseconds=number * 7_919_001)
            author = None if number % 3 else 'a.b,"c"'
            copy.write_row(
                (id_, number % 12, HARD[number % len(HARD)], moment, "client", author, number % 3)
            )


def fetch_all_rows(plain: Connection, table: str = NAME) -> list[tuple[Any, ...]]:
    return plain.execute(
        f"SELECT id, version, updated_at, client_id, author, type, data::text FROM {table}"
        ' ORDER BY id COLLATE "C", version'
    ).fetchall()


def test_canonical_bytes_of_similar_rows_differ() -> None:
    assert encode_row(("a", 1, 2, "b", None)) != encode_row(("a", 1, 2, "b", "-"))
    assert encode_row(("a,1:b", 1)) != encode_row(("a", "b", 1))


@pytest.mark.parametrize("count", [0, 1, 1000])
def test_restored_day_has_every_row(
    store: ArchiveStore, count: int, monkeypatch: pytest.MonkeyPatch, plain: Connection
) -> None:
    monkeypatch.setattr(parquet, "GROUP_ROWS", 64)
    monkeypatch.setattr(write, "FILE_ROWS", 300)
    fill(plain, count)
    before = fetch_all_rows(plain)
    archived_day = archive_day(plain, store, PRODUCT, OLD, SOURCE)
    assert (archived_day.rows, len(archived_day.files)) == (count, -(-count // 300))
    assert archived_day.digest == compute_digest(plain, PRODUCT, SOURCE).finish()
    assert manifest.load_manifest(store, TABLE, OLD) == archived_day
    for file in archived_day.files:
        assert store.compute_sha256(file.name) == (file.sha256, file.bytes)
    assert days.drop_partition(plain, TABLE, OLD)
    assert restore_day(plain, store, PRODUCT, OLD) == archived_day
    assert fetch_all_rows(plain) == before
    assert count_stored(plain) == count


def test_parquet_files_are_sorted_and_compressed_with_zstd(store: ArchiveStore) -> None:
    from pyarrow import parquet as pq

    with connect_plainly() as plain:
        fill(plain, 500)
        archived_day = archive_day(plain, store, PRODUCT, OLD, SOURCE)
    with store.open(archived_day.files[0].name) as file:
        rows = list(parquet.read_rows(file))
        file.seek(0)
        group = pq.ParquetFile(file).metadata.row_group(0)
    keys = [(row[0].encode(), row[1]) for row in rows]
    assert keys == sorted(keys)
    assert {group.column(n).compression for n in range(group.num_columns)} == {"ZSTD"}


def test_archive_store_deletes_incomplete_object_when_writing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing a stream to an object store creates the object, even if only a part of it was
    written."""
    store = ArchiveStore(str(tmp_path))
    monkeypatch.setattr(store, "_local", False)
    with pytest.raises(TypeError), store.write("part") as sink:
        sink.writelines([b"half", None])  # type: ignore[list-item]
    assert store.read("part") is None
    with store.write("part") as sink:
        sink.write(b"whole")
    assert store.read("part") == b"whole"
    store.delete("part")
    assert list(tmp_path.iterdir()) == []


def test_archiving_fails_when_written_file_has_other_rows_than_the_table(
    store: ArchiveStore, monkeypatch: pytest.MonkeyPatch, plain: Connection
) -> None:
    real = parquet.read_rows

    def change_one_row(file: IO[bytes], groups: Any = None) -> Iterator[parquet.ArchivedRow]:
        for number, row in enumerate(real(file, groups)):
            yield (*row[:-1], row[-1] + " ") if number == 2 else row

    monkeypatch.setattr(parquet, "read_rows", change_one_row)
    fill(plain, 50)
    with pytest.raises(ArchiveError, match="read back"):
        archive_day(plain, store, PRODUCT, OLD, SOURCE)
    assert manifest.load_manifest(store, TABLE, OLD) is None


def test_changed_archive_file_is_not_restored(store: ArchiveStore) -> None:
    with connect_plainly() as plain:
        fill(plain, 50)
        archived_day = archive_day(plain, store, PRODUCT, OLD, SOURCE)
        days.drop_partition(plain, TABLE, OLD)
        with store.open(archived_day.files[0].name) as file:
            rows = list(parquet.read_rows(file))
        with store.write(archived_day.files[0].name) as sink:
            writer = parquet.ArchiveFileWriter(sink, PRODUCT)
            for row in rows[:-1]:
                writer.add(row)
            writer.close()
        with pytest.raises(ArchiveError, match="differ from those that the manifest names"):
            restore_day(plain, store, PRODUCT, OLD)
        assert list_partition_names() == []


def test_maintain_archives_days_before_it_drops_them_and_keeps_restored_days(
    store: ArchiveStore, plain: Connection
) -> None:
    fill(plain, 40)
    assert execute_plans(make_policy()).dropped == [NAME]
    assert NAME not in list_partition_names()
    fill(plain, 40)
    archiver = DayArchiver(store)
    assert execute_plans(make_policy(), archiver=archiver).dropped == [NAME]
    assert archiver.archived[TABLE, OLD].rows == 40
    assert ArchivedDay.objects.get(table=TABLE, day=OLD).rows == 40
    restore_day(plain, store, PRODUCT, OLD)
    assert execute_plans(make_policy(), archiver=archiver).dropped == []
    lines = [line for table in build_plans(make_policy()) for line in table.list_lines()]
    assert next(x.reason for x in lines if x.partition.name == NAME).startswith(
        "restored from the arch"
    )
    release_day(plain, TABLE, OLD)
    assert execute_plans(make_policy(), archiver=archiver).dropped == [NAME]
    assert not release_day(plain, TABLE, OLD)


class LateRowArchiver(DayArchiver):
    """An archiver that inserts a late row after it has archived the day."""

    row_inserted = False

    def archive(self, connection: Connection, table: str, of: Any) -> None:
        super().archive(connection, table, of)
        if not self.row_inserted:
            self.row_inserted = True
            insert_version(
                connection, datetime(OLD.year, OLD.month, OLD.day, 13, tzinfo=UTC), "late"
            )


def test_day_with_row_inserted_after_archiving_is_not_dropped_when_second_archiving_fails(
    store: ArchiveStore,
) -> None:
    """The row requires a second archiving, which fails because the archive is unreachable."""

    class UnreachableArchiver(LateRowArchiver):
        def archive(self, connection: Connection, table: str, of: Any) -> None:
            if self.row_inserted:
                raise OSError("the archive is unreachable")
            super().archive(connection, table, of)

    with connect_plainly() as plain:
        fill(plain, 10)
        outcome = execute_plans(make_policy(), archiver=UnreachableArchiver(store))
        assert (outcome.exit_code, outcome.dropped) == (2, [])
        assert count_stored(plain) == 11
        assert execute_plans(make_policy(), archiver=DayArchiver(store)).dropped == [NAME]
        assert restore_day(plain, store, PRODUCT, OLD).rows == 11


def test_archive_reads_few_row_groups_to_find_one_id(
    store: ArchiveStore, monkeypatch: pytest.MonkeyPatch, plain: Connection
) -> None:
    monkeypatch.setattr(parquet, "GROUP_ROWS", 50)
    monkeypatch.setattr(write, "FILE_ROWS", 400)
    fill(plain, 1200)
    expected_rows = [row for row in fetch_all_rows(plain) if row[0] == "Б0042"]
    execute_plans(make_policy(), archiver=DayArchiver(store))
    groups_read: list[int] = []
    real = parquet.read_rows

    def count_reads(file: IO[bytes], groups: Any = None) -> Iterator[parquet.ArchivedRow]:
        groups_read.extend(groups)
        return real(file, groups)

    monkeypatch.setattr(parquet, "read_rows", count_reads)
    versions = read.read_versions(store, PRODUCT, "Б0042")
    columns = ("id", "version", "updated_at", "client_id", "author", "type")
    assert sorted(
        (*(getattr(version, name) for name in columns), version.data.decode())
        for version in versions
    ) == sorted(expected_rows)
    assert len(expected_rows) > 1
    assert len(groups_read) <= 2
    assert read.read_versions(store, PRODUCT, "missing") == []
    archive_source = ArchiveSource(store.url)
    assert archive_source.find_oldest_day(PRODUCT) == OLD
    assert archive_source.find_oldest_day(TASK) is None
    assert archive_source.may_have(PRODUCT, "Б0042")
    assert not archive_source.may_have(PRODUCT, "0")
    assert not archive_source.may_have(TASK, "Б0042")


@pytest.fixture
def with_archive(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], None]:
    def change() -> None:
        variables = {"ANNALS_RETENTION_DAYS": "3", "ANNALS_ARCHIVE_URL": str(tmp_path / "kept")}
        monkeypatch.setattr(settings, "ANNALS", env.read_settings(variables))

    return change


def test_partitions_commands_restore_release_and_forget_accept_days_archived_by_maintain(
    with_archive: Callable[[], None],
) -> None:
    old = datetime.now(UTC).date() - timedelta(days=6)
    with connect_plainly() as plain:
        count = simulated.load_simulated_day(plain, old, applications=20)
        assert run_partitions("restore", str(old))[0] != 0
        with_archive()
        retire_all_topics()
        code, out, _ = run_partitions("maintain", "--json")
        assert (code, json.loads(out)["archived"]["days"]) == (0, len(ENTITIES))
        code, out, _ = run_partitions("restore", str(old))
        assert (code, out.count("Restored ")) == (0, len(ENTITIES))
        total = sum(
            count_stored(plain, days.build_partition_name(table, old)) for table in simulated.TABLES
        )
        assert total == count
        code, _, err = run_partitions("restore", str(old), "--entity", "product-car")
        assert code == 2
        assert "rows" in err
        code, out, _ = run_partitions("release", str(old))
        assert (code, out.count("Released ")) == (0, len(ENTITIES))
        code, out, _ = run_partitions("maintain")
        assert f"Archived {len(ENTITIES)} days" in out
        forget = ("forget", str(old), "--entity", "product-car", "--why", "a test")
        code, out, _ = run_partitions(*forget)
        assert (code, "Removed product_car_aud" in out) == (0, True)
        code, out, err = run_partitions(*forget)
        assert (code, out, "not in the archive" in err) == (2, "", True)
        code, _, err = run_partitions("restore", str(old), "--entity", "product-car")
        assert (code, "not in the archive" in err) == (2, True)
