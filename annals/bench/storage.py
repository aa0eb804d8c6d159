"""`annals bench storage`: how the server keeps long documents, with each kind of compression.

The same rows are sent by COPY into empty days, each time with another setting of their column
`data`, in turn. The first change of a page after a checkpoint writes the page to the WAL, as in
production.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import sql
from rich.console import Console
from rich.table import Table

from annals.bench.harness import Harness, bare_copy, harness
from annals.bench.load import Prepared, prepared, simulated
from annals.bench.printed import print_json
from history.entities import ENTITIES, root

ROOT = root()

# Applications of which a page is read.
PAGES: Final = 300
# PostgreSQL's default, and the largest for pages of 8 KB: a row that fits into a page stays whole.
TARGETS: Final = (2040, 8160)
LEAVES: Final = """
    SELECT inhrelid::regclass::text FROM pg_inherits
    WHERE inhparent = ANY(%s::regclass[]) ORDER BY 1
"""

Figures = dict[str, Any]


class Variant(NamedTuple):
    """compression: `none`, `pglz` or `lz4`. target: toast_tuple_target, bytes."""

    compression: str
    target: int

    def __str__(self) -> str:
        return f"{self.compression}, {self.target}"


def run(messages: int, rounds: int, as_json: bool) -> int:
    """Measure and print. messages: rows of each measurement. rounds: measurements of each."""
    say = Console(stderr=True).print
    say(f"making {messages:,} simulated messages ...")
    batches, records = prepared(simulated(messages))
    lengths = [len(record.data or b"") for record in records]
    del records
    with harness(1) as bench:
        with bench.connect() as connection:
            known = ("none", "pglz", *(["lz4"] if can_lz4(connection) else []))
            shown = ("server_version", "wal_compression", "fsync")
            server = {name: _one(connection, "SELECT current_setting(%s)", name) for name in shown}
        variants = [Variant(each, target) for each in known for target in TARGETS]
        turns: dict[Variant, list[Figures]] = {variant: [] for variant in variants}
        for number in range(rounds):
            say(f"round {number + 1} of {rounds} ...")
            for variant in variants[number % 2 :] + variants[: number % 2]:
                turns[variant].append(_measure(bench, variant, batches, messages))
    figures: Figures = {
        "messages": messages,
        "server": server,
        "over_2_kb": round(sum(length > 2000 for length in lengths) / messages, 3),
        "over_8_kb": round(sum(length > 8000 for length in lengths) / messages, 3),
        "variants": {str(each): _medians(found) for each, found in turns.items()},
    }
    if as_json:
        print_json("storage", figures)
    else:
        _show(figures)
    return 0


def _measure(
    bench: Harness, variant: Variant, batches: Sequence[Prepared], messages: int
) -> Figures:
    with bench.connect() as connection:
        leaves = [
            row[0] for row in connection.execute(LEAVES, [[entity.table for entity in ENTITIES]])
        ]
        for leaf in leaves:
            connection.execute(_altered(leaf, variant))
    bench.empty()
    with bench.connect() as connection:
        log, cpu = _one(connection, "SELECT pg_current_wal_insert_lsn()"), bench.server_cpu()
        seconds = bare_copy(bench, batches, 1)
        used = None if cpu is None else (bench.server_cpu() or 0.0) - cpu
        written = _one(connection, "SELECT pg_current_wal_insert_lsn() - %s::pg_lsn", log)
        sizes = "SELECT sum(pg_table_size(leaf::regclass)) FROM unnest(%s::text[]) leaf"
        data = _one(connection, sizes, leaves)
        began = time.perf_counter()
        for entity in ENTITIES:  # a key that no document has: all of each document is read
            query = sql.SQL("SELECT count(data->'no such key') FROM {}")
            connection.execute(query.format(sql.Identifier(entity.table)))
        read = time.perf_counter() - began
        pages = _page_rows_per_second(connection)
    return {
        "copy_rows_s": messages / seconds,
        "server_cpu_s_per_million": None if used is None else used / messages * 1e6,
        "data_bytes_per_row": float(data) / messages,
        "wal_bytes_per_row": float(written) / messages,
        "read_rows_s": messages / read,
        "page_rows_s": pages,
    }


def _page_rows_per_second(connection: psycopg.Connection[Any]) -> float:
    """How fast the rows of timeline pages come, of the applications with the most versions; what
    Python makes of them is not part of it."""
    table = sql.Identifier(ROOT.table)
    query = sql.SQL("SELECT id FROM {} GROUP BY id ORDER BY count(*) DESC, id LIMIT %s")
    ids = [row[0] for row in connection.execute(query.format(table), [PAGES])]
    page = sql.SQL(
        "SELECT data::text FROM {} WHERE id = %s ORDER BY updated_at DESC, version DESC LIMIT 50"
    ).format(table)
    for _ in range(2):  # the first time reads the pages from disk and plans
        began = time.perf_counter()
        rows = sum(len(connection.execute(page, [id]).fetchall()) for id in ids)
        seconds = time.perf_counter() - began
    return rows / seconds


def can_lz4(connection: psycopg.Connection[Any]) -> bool:
    """Whether the server was built with lz4: Debian's was, the embedded one may not be."""
    row = connection.execute(
        "SELECT 'lz4' = ANY(enumvals) FROM pg_settings WHERE name = 'default_toast_compression'"
    ).fetchone()
    return row is not None and bool(row[0])


def _altered(leaf: str, variant: Variant) -> sql.Composed:
    """The command that makes a day keep its documents in this way."""
    no = variant.compression == "none"
    return sql.SQL(
        "ALTER TABLE {leaf} ALTER COLUMN data SET STORAGE {storage},"
        " ALTER COLUMN data SET COMPRESSION {method}, SET (toast_tuple_target = {target})"
    ).format(
        leaf=sql.Identifier(leaf),
        storage=sql.SQL("EXTERNAL" if no else "EXTENDED"),
        method=sql.SQL("DEFAULT" if no else variant.compression),
        target=sql.Literal(variant.target),
    )


def _one(connection: psycopg.Connection[Any], query: str, *given: object) -> Any:
    row = connection.execute(query, given).fetchone()
    assert row is not None  # noqa: S101 - the queries have a row
    return row[0]


def _medians(turns: list[Figures]) -> Figures:
    """Of each figure; a figure that is not known in a turn counts in the others."""
    known = {name: [turn[name] for turn in turns if turn[name] is not None] for name in turns[0]}
    return {
        name: round(statistics.median(each), 1) if each else None for name, each in known.items()
    }


def _show(figures: Figures) -> None:
    server = ", ".join(f"{name} {value}" for name, value in figures["server"].items())
    console = Console(width=120)
    console.print(
        f"{figures['messages']:,} rows, {figures['over_2_kb']:.1%} above 2 KB, "
        f"{figures['over_8_kb']:.1%} above 8 KB; {server}"
    )
    table = Table("compression, toast_tuple_target")
    names = (
        *("COPY rows/s", "CPU s/million", "bytes/row", "WAL bytes/row", "scan rows/s"),
        "page rows/s",
    )
    for name in names:
        table.add_column(name, justify="right")
    for variant, found in figures["variants"].items():
        values = ("" if value is None else f"{value:,.0f}" for value in found.values())
        table.add_row(variant, *values)
    console.print(table)
