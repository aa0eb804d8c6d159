"""Exports contain every version of the requested days exactly, and can be repeated and
continued."""

import os
import subprocess
import sys
import time as time_of
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from operator import itemgetter
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.db import connection

from history.common import clock
from history.documents import exactjson
from history.documents.record import ChangeType
from history.kinds.entities import get_root
from history.retention import packing
from history.retention.archive import parquet
from history.retention.archive.store import ArchiveStore
from history.retention.archive.write import DayArchiver
from history.retention.export import days as choose
from history.retention.export import run
from history.store.days import days
from history.store.days.canonical import Connection
from tests.command_shapes import parse_shaped
from tests.db import simulated
from tests.db.commands import run_command
from tests.db.partitioned import (
    NOW,
    TABLE,
    TODAY,
    connect_plainly,
    count_stored,
    execute_plans,
    get_day,
    insert_version,
    make_policy,
)
from tests.db.store import Store as Rows

pytestmark = pytest.mark.usefixtures("tables")

FIRST, LAST = get_day(-5), get_day(-3)
WAITS = "SELECT FROM pg_locks WHERE NOT granted AND locktype = 'relation'"
HARD = [
    '{"n": 12345678901234567890.10, "big": 123456789012345678901234567890}',
    "null",
    '{"кириллица": "с \\"кавычками\\", \\\\ и \\u0001\\n\\t", "😀": "\\\\."}',
    '"text"',
]


@pytest.fixture(autouse=True)
def archive_path(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Set the clock to NOW, configure an archive, and return its path."""
    monkeypatch.setattr(clock, "now", lambda: NOW)
    return archive_at(monkeypatch, str(tmp_path_factory.mktemp("archive")))


def archive_at(monkeypatch: pytest.MonkeyPatch, url: str | None) -> str:
    changed = msgspec.structs.replace(settings.ANNALS, archive_url=url)
    monkeypatch.setattr(settings, "ANNALS", changed)
    return url or ""


def fill(*of: date) -> None:
    """Store versions of applications on each of these days."""
    with connect_plainly() as plain:
        for day in of:
            days.create_partition(plain, TABLE, day)
            noon = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
            for number, data in enumerate(HARD):
                moment, kind = noon + timedelta(microseconds=number * 10), ChangeType(number % 3)
                author = None if number else "a,b"
                more: Any = {"type": kind, "client": "client\x02\x7f", "author": author}
                Rows().add(f'Ж"{number}\\', number, data, moment, **more)


@pytest.fixture
def filled(tables: None) -> None:
    """Store versions of applications on the days TODAY - 5 and TODAY - 3, but not TODAY - 4."""
    fill(FIRST, LAST)


def list_files(folder: Path) -> list[str]:
    """Return the names of the exported files."""
    return sorted(file.name for file in folder.iterdir() if not file.name.startswith("."))


def export(
    *words: str,
    entity: str = "product-instance",
    span: tuple[date, date] = (FIRST, LAST + timedelta(days=1)),
) -> str:
    """Run `annals export`, and return its standard error."""
    dates = ("--from", str(span[0]), "--to", str(span[1]))
    ended = run_command("export", "--entity", entity, *dates, *words)
    connection.close()
    assert ended.code == 0, ended
    return ended.err


def parse_line(line: bytes) -> dict[str, Any]:
    version: Any = exactjson.loads(line)
    assert version["updatedAt"].endswith("Z")
    return {**version, "updatedAt": datetime.fromisoformat(version["updatedAt"])}


def run_export(*words: str) -> tuple[int, str]:
    """Export applications, and return the exit code and standard error."""
    code, _, errors = run_command("export", "--entity", "product-instance", *words)
    return code, errors


def archive_and_drop_days(archive: str) -> None:
    """Let `maintain` archive and drop the days before day -3."""
    outcome = execute_plans(make_policy(keep=3), archiver=DayArchiver(ArchiveStore(archive)))
    assert outcome.exit_code == 0


def list_expected_versions() -> list[dict[str, Any]]:
    with connect_plainly() as plain:
        rows = plain.execute(
            f"SELECT id, version, type, updated_at, client_id, author, data::text FROM {TABLE}"
            " ORDER BY updated_at"
        ).fetchall()
    return [
        {
            "id": row[0],
            "version": row[1],
            "type": ChangeType(row[2]).name,
            "updatedAt": row[3].astimezone(UTC),
            "clientId": row[4],
            "author": row[5],
            "data": exactjson.loads(row[6]),
        }
        for row in rows
    ]


@pytest.mark.usefixtures("filled")
def test_export_as_json_lines_is_exact(tmp_path: Path) -> None:
    output = export("--output", str(tmp_path))
    assert "Exported 2 days, 8 rows" in output
    names = list_files(tmp_path)
    assert names == [f"{days.build_partition_name(TABLE, of)}.jsonl" for of in (FIRST, LAST)]
    files = [tmp_path / name for name in names]
    lines = [line for file in files for line in file.read_bytes().splitlines(keepends=True)]
    assert all(line.endswith(b"\n") for line in lines)
    # A cluster returns the rows of a day shard by shard.
    assert sorted(map(parse_line, lines), key=itemgetter("updatedAt")) == list_expected_versions()
    assert sum(b"12345678901234567890.10" in line for line in lines) == 2


@pytest.mark.usefixtures("filled")
def test_export_as_parquet_has_every_row(tmp_path: Path) -> None:
    export("--output", str(tmp_path), "--format", "parquet")
    rows: list[tuple[Any, ...]] = []
    for file in sorted(tmp_path.glob("*.parquet")):
        with file.open("rb") as opened:
            # A cluster returns the rows of a day shard by shard.
            rows += sorted(parquet.read_rows(opened), key=itemgetter(0))  # type: ignore[arg-type]
    expected_versions = list_expected_versions()
    assert [row[0] for row in rows] == [version["id"] for version in expected_versions]
    assert [exactjson.loads(row[-1]) for row in rows] == [
        item["data"] for item in expected_versions
    ]
    assert Decimal("12345678901234567890.10") in exactjson.loads(rows[0][-1]).values()  # type: ignore[union-attr]


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_export_continues_when_it_is_repeated_after_interruption(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = run._write_day

    def stop_at_last(export: Any, of: Any, *args: Any) -> int:
        if of.day == LAST:
            raise OSError("disk full")
        return real(export, of, *args)

    monkeypatch.setattr(run, "_write_day", stop_at_last)
    span = ("--from", str(FIRST), "--to", str(LAST + timedelta(days=1)))
    words = ("--output", str(tmp_path), "--format", kind)
    assert run_export(*span, *words)[0] == 2
    monkeypatch.setattr(run, "_write_day", real)
    (complete_file,) = [tmp_path / name for name in list_files(tmp_path)]
    before = complete_file.stat()
    assert "1 day was exported before" in export("--output", str(tmp_path), "--format", kind)
    assert complete_file.stat() == before
    names = [f"{days.build_partition_name(TABLE, of)}.{kind}" for of in (FIRST, LAST)]
    assert list_files(tmp_path) == names
    assert not list(tmp_path.glob(".*.part"))


@pytest.fixture
def database_environment() -> dict[str, str]:
    """Return the environment of a process that uses the test's database."""
    database = connection.settings_dict
    url = f"postgresql://{database['USER']}:{database['PASSWORD']}@{database['HOST']}:{database['PORT']}/{database['NAME']}"
    return {**os.environ, "DATABASE_URL": url, "ANNALS_RETENTION_DAYS": "3650"}


@pytest.mark.usefixtures("filled")
def test_export_to_stdout_writes_only_versions(
    database_environment: dict[str, str],
) -> None:
    command = [sys.executable, "manage.py", "export", "--entity", "product-instance"]
    span = ["--from", str(FIRST), "--to", str(LAST)]
    finished = subprocess.run(
        [*command, *span], env=database_environment, capture_output=True, check=True
    )
    lines = sorted(map(parse_line, finished.stdout.splitlines()), key=itemgetter("updatedAt"))
    assert lines == [item for item in list_expected_versions() if item["updatedAt"].date() < LAST]
    assert b"Exported 1 day, 4 rows" in finished.stderr
    again = subprocess.run(
        [*command, *span, "--json"], env=database_environment, capture_output=True, check=True
    )
    assert sorted(again.stdout.splitlines()) == sorted(finished.stdout.splitlines())
    summary = parse_shaped("export", again.stderr.splitlines()[-1])
    assert (summary["table"], summary["days"], summary["rows"]) == (TABLE, 1, 4)


def test_export_of_children_has_the_id_of_their_application(
    tmp_path: Path, plain: Connection
) -> None:
    simulated.load_simulated_day(plain, FIRST, applications=30)
    count = count_stored(plain, "product_task_aud")
    output = export("--output", str(tmp_path), entity="product-task")
    assert f"{count:,} rows" in output
    (file,) = [tmp_path / name for name in list_files(tmp_path)]
    versions = [exactjson.loads(line) for line in file.read_bytes().splitlines()]
    assert len(versions) == count
    assert all(version["productInstanceId"] for version in versions)  # type: ignore[index]


@pytest.mark.usefixtures("filled")
def test_export_omits_today_when_no_dates_are_requested(tmp_path: Path) -> None:
    fill(get_day(-1), TODAY)
    code, output = run_export("--output", str(tmp_path))
    assert (code, "Exported 3 days, 12 rows" in output) == (0, True)
    assert list_files(tmp_path) == [
        f"{days.build_partition_name(TABLE, of)}.jsonl" for of in (FIRST, LAST, get_day(-1))
    ]


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_repeated_export_rewrites_only_days_that_got_rows(kind: str, tmp_path: Path) -> None:
    words = ("--output", str(tmp_path), "--format", kind)
    export(*words)
    first, last = (tmp_path / name for name in list_files(tmp_path))
    before = first.stat(), last.stat()
    with connect_plainly() as plain:
        insert_version(plain, datetime(LAST.year, LAST.month, LAST.day, 23, tzinfo=UTC), "late")
    assert "1 day was exported before" in export(*words)
    assert first.stat() == before[0]
    assert last.stat() != before[1]
    assert "2 days were exported before" in export(*words)
    # A file without its .rows file, as earlier releases wrote it, may be incomplete.
    for note in tmp_path.glob(".*.rows"):
        note.unlink()
    assert "were exported before" not in export(*words)


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_export_of_archived_day_equals_export_of_table(
    kind: str, tmp_path: Path, archive_path: str, plain: Connection
) -> None:
    words = ("--format", kind)
    export(*words, "--output", str(tmp_path / "table"))
    archive_and_drop_days(archive_path)
    assert count_stored(plain) == len(HARD)
    output = export(*words, "--output", str(tmp_path / "archive"))
    assert "Exported 2 days, 8 rows" in output
    names = list_files(tmp_path / "table")
    assert list_files(tmp_path / "archive") == names
    for name in names:
        from_table, from_archive = (
            read_versions(tmp_path / folder / name) for folder in ("table", "archive")
        )
        assert from_table == from_archive
        assert len(from_table) == len(HARD)
    assert "2 days were exported before" in export(*words, "--output", str(tmp_path / "archive"))


def read_versions(file: Path) -> list[Any]:
    """Return the versions in an exported file, sorted so that two files can be compared."""
    if file.suffix == ".jsonl":
        return sorted(file.read_bytes().splitlines())
    with file.open("rb") as opened:
        return sorted(parquet.read_rows(opened), key=str)


@pytest.mark.usefixtures("filled")
def test_export_merges_table_and_archive(tmp_path: Path, archive_path: str) -> None:
    archive_and_drop_days(archive_path)
    fill(FIRST)  # the same rows as in the archive, and one more
    with connect_plainly() as plain:
        insert_version(plain, datetime(FIRST.year, FIRST.month, FIRST.day, 23, tzinfo=UTC), "new")
    assert f"Exported 2 days, {2 * len(HARD) + 1} rows" in export("--output", str(tmp_path))
    lines = (tmp_path / list_files(tmp_path)[0]).read_bytes().splitlines()
    assert len(set(lines)) == len(HARD) + 1


@pytest.mark.usefixtures("filled")
def test_export_names_days_that_it_cannot_export(
    tmp_path: Path, archive_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive_and_drop_days(archive_path)
    old = get_day(-200)
    code, output = run_export(
        "--output", str(tmp_path / "both"), "--from", str(old), "--to", str(TODAY)
    )
    last = get_day(-91)
    assert code == 1
    assert f"{TABLE} not exported: {old} to {last}: before retention, and not in the" in output
    # Two days with rows, and two empty days that maintain created.
    assert "Exported 4 days" in output
    archive_at(monkeypatch, None)
    code, output = run_export("--output", str(tmp_path / "other"))
    assert code == 1
    assert f"not exported: {FIRST}: in the archive, and ANNALS_ARCHIVE_URL is not set" in output
    assert list_files(tmp_path / "other") == list_files(tmp_path / "both")[1:]


@pytest.mark.usefixtures("filled")
def test_export_continues_after_damaged_archived_day(tmp_path: Path, archive_path: str) -> None:
    archive_and_drop_days(archive_path)
    (file,) = (Path(archive_path) / TABLE / str(FIRST)).glob("*.parquet")
    file.write_bytes(file.read_bytes()[:-100])
    code, output = run_export("--output", str(tmp_path))
    assert code == 2
    assert (
        f"{days.build_partition_name(TABLE, FIRST)} not exported: "
        f"the archived files of {TABLE} {FIRST} cannot" in output
    )
    assert list_files(tmp_path) == [
        f"{days.build_partition_name(TABLE, of)}.jsonl" for of in (LAST, get_day(-2), get_day(-1))
    ]
    file.unlink()
    assert run_export("--output", str(tmp_path))[0] == 2
    # Rows that can be read, but do not match the manifest.
    manifest_file = Path(archive_path) / TABLE / str(FIRST) / "manifest.json"
    manifest_file.write_text(manifest_file.read_text().replace('"rows": 4', '"rows": 5'))
    assert run_export("--output", str(tmp_path))[0] == 2


def test_export_has_rows_of_day_when_dropping_the_day_was_interrupted(
    tmp_path: Path, plain: Connection
) -> None:
    fill(FIRST)
    plain.execute(f"ALTER TABLE {TABLE} DETACH PARTITION {days.build_partition_name(TABLE, FIRST)}")
    assert "Exported 1 day, 4 rows" in export("--output", str(tmp_path))
    plain.execute(f"CREATE TABLE a_default PARTITION OF {TABLE} DEFAULT")
    span = FIRST, FIRST + timedelta(days=1)
    assert "Exported 1 day, 4 rows" in export("--output", str(tmp_path / "again"), span=span)


def choose_both_days() -> list[choose.ExportDay]:
    return choose.choose_days(get_root(), FIRST, FIRST + timedelta(days=1))[0]


def test_export_fails_for_day_that_is_dropped_during_the_export(
    tmp_path: Path, plain: Connection
) -> None:
    """An empty file does not replace the complete file of an earlier export."""
    fill(FIRST)
    export("--output", str(tmp_path), span=(FIRST, FIRST + timedelta(days=1)))
    [name], chosen_days = list_files(tmp_path), choose_both_days()
    days.drop_partition(plain, TABLE, FIRST)
    [exported_day] = run.to_directory(
        run.ExportJob(get_root(), None, "jsonl"), chosen_days, tmp_path
    )
    assert exported_day.error is not None
    assert len((tmp_path / name).read_bytes().splitlines()) == len(HARD)


def test_export_is_complete_when_day_is_packed_during_the_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The export waits until the day is packed, and reads the new table."""
    fill(FIRST)
    chosen_days, swapped = choose_both_days(), Event()

    def replace_slowly(replace: Callable[..., None], *args: Any) -> None:
        replace(*args)
        swapped.set()
        deadline = time_of.monotonic() + 20
        with connect_plainly() as other_session:
            while not other_session.execute(WAITS).rowcount and time_of.monotonic() < deadline:
                time_of.sleep(0.02)

    for name in ("replace_table", "replace_distributed_table"):
        monkeypatch.setattr(days, name, partial(replace_slowly, getattr(days, name)))
    with connect_plainly() as plain, ThreadPoolExecutor(1) as pool:
        packed = pool.submit(packing.pack_day, plain, get_root(), FIRST)
        assert swapped.wait(120)
        [exported_day] = run.to_directory(
            run.ExportJob(get_root(), None, "jsonl"), chosen_days, tmp_path
        )
        packed.result()
    assert (exported_day.rows, exported_day.error) == (len(HARD), None)


def test_export_includes_partitions_that_annals_did_not_create(
    tmp_path: Path, plain: Connection
) -> None:
    """One partition spans several days, two partitions share one day, and one is the default
    partition."""
    noon = datetime.combine(FIRST, time(12), UTC)
    for name, start, end in (
        ("long", get_day(-9), FIRST),
        ("morning", FIRST, noon),
        ("evening", noon, FIRST + timedelta(days=1)),
    ):
        plain.execute(
            f"CREATE TABLE {name} PARTITION OF {TABLE} FOR VALUES FROM ('{start}') TO ('{end}')"
        )
    for id, moment in (("old", get_day(-7)), ("a", noon - timedelta(hours=1)), ("b", noon)):
        insert_version(plain, datetime.combine(moment, time(1), UTC) if id == "old" else moment, id)
    assert "Exported 3 days, 3 rows" in export("--output", str(tmp_path), span=(get_day(-7), LAST))
    names = [
        f"{days.build_partition_name(TABLE, get_day(number))}.jsonl" for number in (-7, -6, -5)
    ]
    assert list_files(tmp_path) == names
    assert [len((tmp_path / name).read_bytes().splitlines()) for name in names] == [1, 0, 2]
    plain.execute(f"CREATE TABLE others PARTITION OF {TABLE} DEFAULT")
    insert_version(plain, datetime.combine(get_day(-10), time(1), UTC), "nowhere else")
    folder = tmp_path / "others"
    assert "Exported 1 day, 1 row" in export(
        "--output", str(folder), span=(get_day(-10), get_day(-9))
    )
    assert b"nowhere else" in (folder / list_files(folder)[0]).read_bytes()
