"""The data of `python -m benchmarks timeline`: one database for each number of partitions.

It has copies of simulated applications under different ids, written by COPY. Later runs use it
again.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from typing import Any

import msgspec
import psycopg
from psycopg.conninfo import make_conninfo

from annals.demo.simulator import stream
from benchmarks.harness import manage, recreate
from benchmarks.load import transaction
from history.daily.window import Window
from history.entities import root
from history.record import Record
from ingest.source.decode import decode
from ingest.source.message import Message

ROOT = root()

BIG, BIG_VERSIONS = "BIG", 10_000
HOT_COUNT, HOT_VERSIONS = 50, 120
TEMPLATES = 400
LIFE_DAYS = 3.0
BATCH = 20_000
SECOND = 1_000_000

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class DataSet:
    """A filled database. days: number of partitions per table. hot: ids of applications with
    HOT_VERSIONS versions. usual: ids of other applications."""

    conninfo: str
    days: int
    hot: tuple[str, ...]
    usual: tuple[str, ...]

    def environment(self) -> dict[str, str]:
        """The environment in which a process uses this database."""
        return _environment(self.conninfo, self.days)


def data_set(server: str, days: int, rows: int, say: Say) -> DataSet:
    """The data set with at least `rows` versions of applications and `days` partitions; created
    if it does not exist. server: URI of a PostgreSQL where a database may be created."""
    name = f"annals_timeline_{days}"
    conninfo = make_conninfo(server, dbname=name)
    with psycopg.connect(server, autocommit=True) as connection:
        known = connection.execute(
            "SELECT 1 FROM pg_database WHERE datname = %s", [name]
        ).fetchone()
    if not known or not _filled(conninfo, rows):
        recreate(server, name)
        _fill(conninfo, days, rows, say)
    else:  # by an earlier release, perhaps; and the access journal needs a partition of today
        manage(_environment(conninfo, days), "migrate")
    hot = tuple(f"HOT{number}" for number in range(HOT_COUNT))
    with psycopg.connect(conninfo, autocommit=True) as connection:
        usual = connection.execute("SELECT id FROM bench_usual ORDER BY id").fetchall()
    return DataSet(conninfo, days, hot, tuple(id for (id,) in usual))


def _filled(conninfo: str, rows: int) -> bool:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        if connection.execute("SELECT to_regclass('bench_done')").fetchone() == (None,):
            return False
        return connection.execute("SELECT rows FROM bench_done").fetchone() == (rows,)


def _environment(conninfo: str, days: int) -> dict[str, str]:
    return {
        **os.environ,
        "DATABASE_URL": conninfo,
        "ANNALS_DEMO": "true",
        "ANNALS_RETENTION_DAYS": str(days - 2),
        "ANNALS_AHEAD_DAYS": "1",
        "ANNALS_LOG_LEVEL": "WARNING",
    }


def _fill(conninfo: str, days: int, rows: int, say: Say) -> None:
    """Make the tables of an empty database, with their days, and fill them."""
    environment = _environment(conninfo, days)
    manage(environment, "migrate")
    manage(environment, "partitions", "maintain")
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    start = round((midnight - timedelta(days=days - 3)).timestamp()) * SECOND
    span = (days - 3) * 86_400 * SECOND
    families = _families()
    stored = 0
    usual: list[str] = []
    with psycopg.connect(conninfo, autocommit=True) as connection:
        for batch in _batches(_records(families, start, span, rows, usual)):
            stored += _copy(connection, batch)
            if stored % (25 * BATCH) < BATCH:
                say(f"{days} days: {stored:,} rows")
        say(f"{days} days: {stored:,} rows stored, vacuum ...")
        connection.execute("VACUUM (ANALYZE)")
        connection.execute("CREATE TABLE bench_usual AS SELECT unnest(%s::text[]) AS id", [usual])
        connection.execute("CREATE TABLE bench_done AS SELECT %s::int AS rows", [rows])


def _families() -> list[list[Record]]:
    """Applications with their children. updated_at is relative to the application's life: 0 is its
    start, SECOND its end."""
    found: dict[str, list[Record]] = {}
    now = datetime.now(UTC)
    window = Window.at(now, 90, 14)
    for message in stream(1, now - timedelta(days=1), applications=TEMPLATES):
        record = decode(Message(message.topic, 0, 0, 0, message.key, message.value), window)
        found.setdefault(message.product_instance_id, []).append(record)
    return [_scaled(family) for family in found.values()]


def _scaled(family: Sequence[Record]) -> list[Record]:
    moments = [record.updated_at for record in family]
    first, length = min(moments), max(max(moments) - min(moments), 1)
    return [
        msgspec.structs.replace(record, updated_at=(record.updated_at - first) * SECOND // length)
        for record in family
    ]


def _records(
    families: Sequence[Sequence[Record]], start: int, span: int, rows: int, usual: list[str]
) -> Iterator[Record]:
    """Applications in the order of time until there are `rows` versions, then applications with
    many versions. Appends the ids of some 5,000 applications to `usual`."""
    life = round(min(LIFE_DAYS * 86_400 * SECOND, span / 3))
    roots = sum(not record.product_instance_id for family in families for record in family)
    copies = -(-rows * len(families) // roots)
    for number, family in enumerate(islice(cycle(families), copies)):
        born = start + (span - life) * number // copies
        if number % max(1, copies // 5000) == 0:
            usual.append(_renamed(family[0].product_instance_id or family[0].id, number))
        for record in family:
            application = record.product_instance_id
            yield msgspec.structs.replace(
                record,
                id=_renamed(record.id, number),
                updated_at=born + life * record.updated_at // SECOND,
                product_instance_id=application and _renamed(application, number),
            )
    longest = max(families, key=lambda family: sum(not each.product_instance_id for each in family))
    versions = [each for each in longest if not each.product_instance_id and each.data != b"null"]
    for id, count in [(BIG, BIG_VERSIONS), *((f"HOT{n}", HOT_VERSIONS) for n in range(HOT_COUNT))]:
        for version, record in enumerate(islice(cycle(versions), count)):
            yield msgspec.structs.replace(
                record, id=id, version=version, type=int(version > 0),
                updated_at=start + span * version // count,
            )  # fmt: skip


def _renamed(id: str, number: int) -> str:
    return f"{id[:22]}~{number}"


def _batches(records: Iterator[Record]) -> Iterator[list[Record]]:
    while batch := list(islice(records, BATCH)):
        yield batch


def _copy(connection: psycopg.Connection[Any], batch: Sequence[Record]) -> int:
    for statement, payload in transaction(batch):
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.write(payload)
    return sum(record.entity == ROOT.name for record in batch)
