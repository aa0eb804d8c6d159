"""Exports contain every version of the requested days, exactly, and can be continued."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from django.core.management import call_command
from django.db import connection

from history import days, exactjson
from history.archive import parquet
from history.export import run
from history.record import ChangeType
from tests.db import simulated
from tests.db.partitioned import TABLE, day, raw, stored, tables, transactional_db

__all__ = ["tables", "transactional_db"]
pytestmark = pytest.mark.usefixtures("tables")

FIRST, LAST = day(-5), day(-3)
HARD = [
    '{"n": 12345678901234567890.10, "big": 123456789012345678901234567890}',
    "null",
    '{"кириллица": "с \\"кавычками\\", \\\\ и \\u0001\\n\\t", "😀": "\\\\."}',
    '"text"',
]


@pytest.fixture
def filled(tables: None) -> None:
    """Days -5 and -3 of applications, nothing on day -4 between them."""
    with raw() as plain:
        for of in (FIRST, LAST):
            days.create(plain, TABLE, of)
            noon = datetime(of.year, of.month, of.day, 12, tzinfo=UTC)
            for number, data in enumerate(HARD):
                plain.execute(
                    f"INSERT INTO {TABLE} (id, version, data, updated_at, client_id, author, type)"
                    " VALUES (%s, %s, %s, %s, %s, %s, %s)",
                    [
                        f'Ж"{number}\\',
                        number,
                        data,
                        noon + timedelta(microseconds=number),
                        "client\x02",
                        None if number else "a,b",
                        number % 3,
                    ],
                )


def export(*words: str, entity: str = "product-instance") -> str:
    """What `manage.py export` writes to standard error."""
    said = io.StringIO()
    span = ("--from", str(FIRST), "--to", str(LAST + timedelta(days=1)))
    call_command("export", "--entity", entity, *span, *words, stderr=said, no_color=True)
    connection.close()
    return said.getvalue()


def parsed(line: bytes) -> dict[str, Any]:
    found: Any = exactjson.loads(line)
    assert found["updatedAt"].endswith("Z")
    return {**found, "updatedAt": datetime.fromisoformat(found["updatedAt"])}


def expected() -> list[dict[str, Any]]:
    with raw() as plain:
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
def test_json_lines_are_exact(tmp_path: Path) -> None:
    said = export("--output", str(tmp_path), "--jobs", "3")
    assert "Exported 2 days, 8 rows" in said
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == [
        f"{days.partition_name(TABLE, of)}.jsonl" for of in (FIRST, LAST)
    ]
    lines = [line for file in files for line in file.read_bytes().splitlines(keepends=True)]
    assert all(line.endswith(b"\n") for line in lines)
    assert [parsed(line) for line in lines] == expected()
    assert b"12345678901234567890.10" in lines[0]


@pytest.mark.usefixtures("filled")
def test_parquet_and_avro_have_every_row(tmp_path: Path) -> None:
    export("--output", str(tmp_path), "--format", "parquet")
    export("--output", str(tmp_path), "--format", "avro")
    by_parquet: list[tuple[Any, ...]] = []
    by_avro: list[tuple[Any, ...]] = []
    for file in sorted(tmp_path.glob("*.parquet")):
        with file.open("rb") as opened:
            by_parquet += parquet.rows(opened)  # type: ignore[arg-type]
    for file in sorted(tmp_path.glob("*.avro")):
        with file.open("rb") as opened:
            by_avro += [tuple(record.values()) for record in fastavro.reader(opened)]  # type: ignore[union-attr]
    wanted = expected()
    assert [row[0] for row in by_parquet] == [version["id"] for version in wanted]
    assert [exactjson.loads(row[-1]) for row in by_parquet] == [each["data"] for each in wanted]
    assert [(*row[:2], *row[3:]) for row in by_avro] == [(*row[:2], *row[3:]) for row in by_parquet]
    assert [row[2] for row in by_avro] == [
        datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=row[2]) for row in by_parquet
    ]
    assert Decimal("12345678901234567890.10") in exactjson.loads(by_avro[0][-1]).values()  # type: ignore[union-attr]


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("kind", ["jsonl", "parquet", "avro"])
def test_an_interrupted_export_goes_on(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = run._to_file

    def stop_at_last(entity: Any, part: Any, *rest: Any) -> run.Exported:
        if part.day == LAST:
            (tmp_path / f".{part.name}.{kind}.part").write_bytes(b"half")
            raise OSError("disk full")
        return real(entity, part, *rest)

    monkeypatch.setattr(run, "_to_file", stop_at_last)
    with pytest.raises(SystemExit) as stopped:
        export("--output", str(tmp_path), "--format", kind, "--jobs", "1")
    assert stopped.value.code == 2
    monkeypatch.setattr(run, "_to_file", real)
    (done,) = [file for file in tmp_path.iterdir() if not file.name.startswith(".")]
    before = done.stat()
    assert "1 days were exported before" in export("--output", str(tmp_path), "--format", kind)
    assert done.stat() == before
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == [f"{days.partition_name(TABLE, of)}.{kind}" for of in (FIRST, LAST)]


@pytest.fixture
def in_this_database() -> dict[str, str]:
    """The environment of a process that works on the test's database."""
    mine = connection.settings_dict
    url = f"postgresql://{mine['USER']}:{mine['PASSWORD']}@{mine['HOST']}:{mine['PORT']}/{mine['NAME']}"
    return {**os.environ, "DATABASE_URL": url}


@pytest.mark.usefixtures("filled")
def test_standard_output_is_one_stream_of_nothing_but_versions(
    in_this_database: dict[str, str],
) -> None:
    command = [sys.executable, "manage.py", "export", "--entity", "product-instance"]
    span = ["--from", str(FIRST), "--to", str(LAST)]
    done = subprocess.run([*command, *span], env=in_this_database, capture_output=True, check=True)
    lines = [parsed(line) for line in done.stdout.splitlines()]
    assert lines == [each for each in expected() if each["updatedAt"].date() < LAST]
    assert b"Exported 1 days, 4 rows" in done.stderr


def test_children_name_their_application_and_the_rate_is_compared(tmp_path: Path) -> None:
    with raw() as plain:
        simulated.load(plain, FIRST, applications=30)
        count = stored(plain, "product_task_aud")
    said = export("--output", str(tmp_path), "--compare", entity="product-task")
    assert f"{count:,} rows" in said
    assert "Plain COPY TO" in said
    (file,) = tmp_path.iterdir()
    found = [exactjson.loads(line) for line in file.read_bytes().splitlines()]
    assert len(found) == count
    assert all(version["productInstanceId"] for version in found)  # type: ignore[index]


def test_no_day_is_an_empty_export(tmp_path: Path) -> None:
    assert "Exported 0 days, 0 rows" in export("--output", str(tmp_path), "--compare")
