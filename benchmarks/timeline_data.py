"""Makes the data sets of `python -m benchmarks timeline`: a database for each number of days.

A data set has many copies of simulated applications, each under another id. Later runs use the data
set again.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from typing import Any

import msgspec
import psycopg
from psycopg.conninfo import make_conninfo

from annals.demo.simulator import generate_messages
from benchmarks import cluster
from benchmarks.harness import recreate_database, run_command
from benchmarks.load import encode_transaction
from history.documents.record import Record
from history.kinds.entities import get_root
from history.store.days.window import Window
from ingest.messages.decode import decode
from ingest.messages.message import KafkaMessage

ROOT = get_root()

BIG, BIG_VERSIONS = "BIG", 10_000
HOT_COUNT, HOT_VERSIONS = 50, 120
FIVE_COUNT = 50
TEMPLATES = 400
LIFE_DAYS = 3.0
BATCH = 20_000
SECOND = 1_000_000

PrintProgress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class TimelineData:
    """A database that is filled with applications for the benchmark.

    Attributes:
        conninfo: The URI of the database.
        days: How many partitions each table has.
        hot: The ids of applications with HOT_VERSIONS versions.
        usual: The ids of other applications.
        five: The ids of applications with five children. All business keys of such an application
            and its children contain the application's id.
    """

    conninfo: str
    days: int
    hot: tuple[str, ...]
    usual: tuple[str, ...]
    five: tuple[str, ...]

    def make_environment(self) -> dict[str, str]:
        """Return the environment for a process that uses this database."""
        return _make_environment(self.conninfo, self.days)


def prepare_data(
    server: str, days: int, rows: int, print_progress: PrintProgress, shards: int | None = None
) -> TimelineData:
    """Return a data set with at least `rows` versions of applications. Create it if necessary.

    Args:
        server: The URI of a PostgreSQL where a database may be created.
        days: How many partitions each table has.
        shards: The number of shards of each table on a cluster; None for one server.
    """
    name = f"annals_timeline_{days}"
    conninfo = make_conninfo(server, dbname=name)
    with psycopg.connect(server, autocommit=True) as connection:
        existing = connection.execute(
            "SELECT 1 FROM pg_database WHERE datname = %s", [name]
        ).fetchone()
    if not existing or not _is_filled(conninfo, rows):
        if shards is None:
            recreate_database(server, name)
        else:
            cluster.recreate_database(server, name)
        _fill_database(conninfo, days, rows, print_progress, shards)
    else:
        # The tables may be those of an earlier release, and the journal needs today's partition.
        run_command(_make_environment(conninfo, days), "migrate")
    hot = tuple(f"HOT{number}" for number in range(HOT_COUNT))
    with psycopg.connect(conninfo, autocommit=True) as connection:
        usual = connection.execute("SELECT id FROM bench_usual ORDER BY id").fetchall()
    five = tuple(f"FIVE{number}" for number in range(FIVE_COUNT))
    return TimelineData(conninfo, days, hot, tuple(id for (id,) in usual), five)


def _is_filled(conninfo: str, rows: int) -> bool:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        if connection.execute("SELECT to_regclass('bench_done')").fetchone() == (None,):
            return False
        return connection.execute("SELECT rows FROM bench_done").fetchone() == (rows,)


def _make_environment(conninfo: str, days: int) -> dict[str, str]:
    return {
        **os.environ,
        "DATABASE_URL": conninfo,
        "ANNALS_DEMO": "true",
        "ANNALS_RETENTION_DAYS": str(days - 2),
        "ANNALS_AHEAD_DAYS": "1",
        "ANNALS_LOG_LEVEL": "WARNING",
    }


def _fill_database(
    conninfo: str, days: int, rows: int, print_progress: PrintProgress, shards: int | None
) -> None:
    """Create the tables and the days of an empty database, and fill them."""
    environment = _make_environment(conninfo, days)
    run_command(environment, "migrate")
    if shards is not None:
        run_command(environment, "distribute", "--shards", str(shards))
    run_command(environment, "partitions", "maintain")
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    start = round((midnight - timedelta(days=days - 3)).timestamp()) * SECOND
    span = (days - 3) * 86_400 * SECOND
    families = _simulate_families()
    stored = 0
    usual: list[str] = []
    with psycopg.connect(conninfo, autocommit=True) as connection:
        for batch in _split_batches(_generate_records(families, start, span, rows, usual)):
            stored += _copy_batch(connection, batch)
            if stored % (25 * BATCH) < BATCH:
                print_progress(f"{days} days: {stored:,} rows")
        run_command(environment, "search", "index")
        print_progress(f"{days} days: {stored:,} rows stored, vacuum ...")
        connection.execute("VACUUM (ANALYZE)")
        connection.execute("CREATE TABLE bench_usual AS SELECT unnest(%s::text[]) AS id", [usual])
        connection.execute("CREATE TABLE bench_done AS SELECT %s::int AS rows", [rows])


def _simulate_families() -> list[list[Record]]:
    """Return the families: the versions of each simulated application and its children.

    `updated_at` of these versions is their position in the life of the family: from 0 for the
    first version to 1,000,000 (the constant SECOND) for the last version.
    """
    family_by_application: dict[str, list[Record]] = {}
    now = datetime.now(UTC)
    window = Window.at(now, 90, 14)
    for message in generate_messages(1, now - timedelta(days=1), applications=TEMPLATES):
        record = decode(KafkaMessage(message.topic, 0, 0, 0, message.key, message.value), window)
        family_by_application.setdefault(message.product_instance_id, []).append(record)
    return [_scale_moments(family) for family in family_by_application.values()]


def _scale_moments(family: Sequence[Record]) -> list[Record]:
    moments = [record.updated_at for record in family]
    first, length = min(moments), max(max(moments) - min(moments), 1)
    return [
        msgspec.structs.replace(record, updated_at=(record.updated_at - first) * SECOND // length)
        for record in family
    ]


def _generate_records(
    families: Sequence[Sequence[Record]], start: int, span: int, rows: int, usual: list[str]
) -> Iterator[Record]:
    """Yield all versions of a data set.

    Applications with five children come first, then usual applications in order of time, and then
    applications with many versions.

    Args:
        families: See `_simulate_families`.
        start: The moment of the earliest version, in microseconds since 1970.
        span: The time from the earliest version to the latest one, in microseconds.
        rows: The minimum number of versions of usual applications.
        usual: A list to which the ids of about 5,000 usual applications are added.
    """
    yield from _generate_applications_with_five_children(families, start, span)
    life = round(min(LIFE_DAYS * 86_400 * SECOND, span / 3))
    roots = sum(not record.product_instance_id for family in families for record in family)
    copies = -(-rows * len(families) // roots)
    for number, family in enumerate(islice(cycle(families), copies)):
        start_of_life = start + (span - life) * number // copies
        if number % max(1, copies // 5000) == 0:
            usual.append(_rename_id(family[0].product_instance_id or family[0].id, number))
        for record in family:
            application = record.product_instance_id
            yield msgspec.structs.replace(
                record,
                id=_rename_id(record.id, number),
                updated_at=start_of_life + life * record.updated_at // SECOND,
                product_instance_id=application and _rename_id(application, number),
            )
    longest = max(
        families, key=lambda family: sum(not record.product_instance_id for record in family)
    )
    versions = [
        record for record in longest if not record.product_instance_id and record.data != b"null"
    ]
    for id, count in [(BIG, BIG_VERSIONS), *((f"HOT{n}", HOT_VERSIONS) for n in range(HOT_COUNT))]:
        for version, record in enumerate(islice(cycle(versions), count)):
            yield msgspec.structs.replace(
                record,
                id=id,
                version=version,
                type=int(version > 0),
                updated_at=start + span * version // count,
            )


def _generate_applications_with_five_children(
    families: Sequence[Sequence[Record]], start: int, span: int
) -> Iterator[Record]:
    """Yield versions of FIVE_COUNT applications with five children, spread over the whole span.

    Their business keys differ from the business keys of all other applications.
    """
    three, two = (
        next(family for family in families if _count_children(family) == count) for count in (3, 2)
    )
    records = [*three, *(record for record in two if record.product_instance_id)]
    for number in range(FIVE_COUNT):
        id = f"FIVE{number}"
        for record in records:
            data = bytes(record.data)
            for name in ("number", "clientId"):
                data = re.sub(
                    rf'"{name}":"[^"]*"'.encode(), f'"{name}":"{name}-{id}"'.encode(), data
                )
            yield msgspec.structs.replace(
                record,
                id=_rename_id(record.id, number) if record.product_instance_id else id,
                updated_at=start + span * record.updated_at // SECOND,
                product_instance_id=record.product_instance_id and id,
                data=data,
            )


def _count_children(family: Sequence[Record]) -> int:
    return len({record.id for record in family if record.product_instance_id})


def _rename_id(id: str, number: int) -> str:
    return f"{id[:22]}~{number}"


def _split_batches(records: Iterator[Record]) -> Iterator[list[Record]]:
    while batch := list(islice(records, BATCH)):
        yield batch


def _copy_batch(connection: psycopg.Connection[Any], batch: Sequence[Record]) -> int:
    for statement, payload in encode_transaction(batch):
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.write(payload)
    return sum(record.entity == ROOT.name for record in batch)
