"""`python -m benchmarks changes`: measures how long lists of changes take.

Compares these times with SQL queries on a table that is not partitioned.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock
from statistics import quantiles
from typing import Any, Final, NamedTuple

import psycopg
from rich.console import Console
from rich.table import Table

from benchmarks import changes_memory
from benchmarks.harness import create_database, report_figures, run_command, use_database
from benchmarks.timeline import HOST_READER
from benchmarks.timeline_data import _make_environment
from history import timeline
from history.kinds.entities import get_root
from history.retention import packing
from history.store import change_indexes
from history.store.days import days
from history.timeline import ChangesPage, ChangesQuery, VersionFilters

ROOT: Final = get_root()
NAME: Final = "annals_changes"
DAYS, PACKED_DAYS, ALL_DAYS = 7, 4, 90
PEOPLE, SERVICES = 3_000, 40
PAGE_SIZE: Final = 50

Figures = dict[str, Any]
Question = Callable[[int], None]
PrintProgress = Callable[[str], None]

# Makes nine versions of each document, spread over the day, by three people and two services. A
# document has 2 KB, which zlib compresses to half, like a real one. /rate changes in every
# twentieth version.
_FILL: Final = """
INSERT INTO {table} (id, version, data, updated_at, client_id, author, type)
SELECT 'D' || %(day)s || '-' || n / 9, n %% 9,
    jsonb_build_object('name', 'Loan ' || n / 9, 'rate', (n / 9 * 7 + n %% 9) / 20,
        'stage', n %% 9, 'sum', n / 9 * 1000, 'text', (
            SELECT string_agg(md5((n / 9)::text || number), '')
            FROM generate_series(1, 60) AS number)),
    %(start)s::timestamptz + (n %% 9 + random()) * interval '1 day' / 9.001,
    'service-' || (n / 9 + 20 * floor(random() * 2)::int) %% %(services)s,
    'person-' || (n / 9 * 7 + 1000 * floor(random() * 3)::int) %% %(people)s,
    (n %% 9 > 0)::int
FROM generate_series(0, %(versions)s - 1) AS n
"""
_REFERENCE: Final = """
CREATE TABLE reference AS SELECT id, version, data, updated_at, client_id, author, type
    FROM {table} ORDER BY updated_at;
CREATE UNIQUE INDEX ON reference (id, version);
CREATE INDEX ON reference (author, updated_at);
CREATE INDEX ON reference (client_id, updated_at);
"""
_REFERENCE_PAGE: Final = """
SELECT page.*, before.data FROM (
    SELECT * FROM reference
    WHERE {maker} = %(maker)s AND updated_at >= %(low)s AND updated_at < %(high)s
    ORDER BY updated_at DESC, id DESC, version DESC LIMIT 50
) AS page
LEFT JOIN reference AS before ON before.id = page.id AND before.version = page.version - 1
"""


class Latency(NamedTuple):
    """The median and the 99th percentile of the time of a request, in milliseconds."""

    p50: float
    p99: float


def run(
    versions: int = 1_000_000, rounds: int = 200, as_json: bool = False, cluster: str = ""
) -> int:
    """Measure lists of changes, print the figures, and return the exit code.

    Args:
        versions: How many versions each full day gets.
        rounds: How many times to request each list, each time for another person or service.
        cluster: The URI of a database on a Citus coordinator. If it is set, only compare the
            cluster with one server. See `changes_cluster.run`.
    """
    if cluster:
        from benchmarks import changes_cluster

        return changes_cluster.run(cluster, versions, rounds, as_json)
    with create_database(NAME) as conninfo:
        figures = _measure(conninfo, versions, rounds)
    figures["targets"] = _list_targets(figures)
    return report_figures("changes", figures, _print_figures, as_json)


def _measure(conninfo: str, versions: int, rounds: int) -> Figures:
    print_progress = Console(stderr=True).print
    full_days = list_full_days()
    fill_database(conninfo, versions, print_progress)
    figures: Figures = {"versions": versions * DAYS, "rounds": rounds}
    with psycopg.connect(conninfo, autocommit=True) as connection:
        print_progress("the reference ...")
        connection.execute(_REFERENCE.format(table=ROOT.table))
        print_progress("documents of 36 KB and of 1 MB ...")
        changes_memory.store_large_documents(connection, full_days[0] - timedelta(days=1))
        pack_days(connection, print_progress)
        figures["share"] = _measure_index_share(connection, full_days[0])
        for name, ask in list_questions(full_days).items():
            figures[name] = measure_latency(rounds, ask)
        for name, ask in _list_reference_questions(connection, full_days).items():
            figures[name] = measure_latency(rounds, ask)
    figures["path"] = _measure_path(full_days[-1])
    figures["path, packed"] = _measure_path(full_days[1])
    print_progress("memory ...")
    figures["memory"] = changes_memory.measure_pages(_make_environment(conninfo, ALL_DAYS))
    return figures


def list_full_days() -> list[date]:
    """Return the days that have versions, oldest first."""
    today = datetime.now(UTC).date()
    return [today - timedelta(days=number) for number in range(DAYS, 0, -1)]


def fill_database(
    conninfo: str, versions: int, print_progress: PrintProgress, shards: int | None = None
) -> None:
    """Create tables with ALL_DAYS days in an empty database, and store versions in the last days.

    Only the last DAYS days before today get versions. Afterwards, Django uses this database.

    Args:
        versions: How many versions each of the last days gets.
        shards: The number of shards of each table on a cluster; None for one server.
    """
    environment = _make_environment(conninfo, ALL_DAYS)
    run_command(environment, "migrate")
    if shards is not None:
        run_command(environment, "distribute", "--shards", str(shards))
    use_database(conninfo)
    full_days = list_full_days()
    today = datetime.now(UTC).date()
    with psycopg.connect(conninfo, autocommit=True) as connection:
        for number in range(1, ALL_DAYS + 1):
            days.create_partition(connection, ROOT.table, today - timedelta(days=number))
        for number, day in enumerate(full_days):
            print_progress(f"{day}: {versions:,} versions ...")
            connection.execute(
                _FILL.format(table=ROOT.table),
                {
                    "day": number,
                    "start": datetime.combine(day, clock(), UTC),
                    "services": SERVICES,
                    "people": PEOPLE,
                    "versions": versions,
                },
            )


def pack_days(connection: psycopg.Connection[Any], print_progress: PrintProgress) -> None:
    """Pack PACKED_DAYS days: the oldest of the days that have versions."""
    for day in list_full_days()[:PACKED_DAYS]:
        print_progress(f"{day}: packing ...")
        packing.pack_day(connection, ROOT, day)
    connection.execute("VACUUM (ANALYZE)")


def _measure_index_share(connection: psycopg.Connection[Any], day: date) -> float:
    """Return the size of the indexes for lists of changes, as a share of a packed day's size."""
    names = [
        change_indexes.build_index_name(ROOT.table, index)
        for index in change_indexes.CHANGE_INDEXES
    ]
    row = connection.execute(
        """
        SELECT sum(pg_relation_size(part.inhrelid)) / pg_total_relation_size(%(day)s::regclass)
        FROM pg_inherits AS part JOIN pg_index ON indexrelid = part.inhrelid
        WHERE indrelid = %(day)s::regclass AND inhparent = ANY(%(names)s::text[]::regclass[])
        """,
        {"day": days.build_partition_name(ROOT.table, day), "names": names},
    ).fetchone()
    return float(row[0]) if row else 0.0


def list_questions(full_days: Sequence[date]) -> dict[str, Question]:
    """Return the questions to measure, by name.

    A question is a function that requests a list of changes. Its argument is a number that chooses
    the person or service.
    """
    start = datetime.combine(full_days[0], clock(), UTC)
    end = datetime.combine(full_days[-1] + timedelta(days=1), clock(), UTC)
    packed_hour = datetime.combine(full_days[1], clock(12), UTC)
    plain_hour = datetime.combine(full_days[-1], clock(12), UTC)
    hour = timedelta(hours=1)
    return {
        "person": lambda n: _list_changes(author=_name_person(n), since=start, until=end),
        "person, packed day": lambda n: _list_changes(
            author=_name_person(n), since=start, until=start + timedelta(days=1)
        ),
        "person, 90 days, nothing": lambda n: _list_changes(
            author=f"nobody-{n}", since=end - timedelta(days=ALL_DAYS), until=end
        ),
        "service, plain hour": lambda n: _list_changes(
            client_id=_name_service(n), since=plain_hour, until=plain_hour + hour
        ),
        "service, packed hour": lambda n: _list_changes(
            client_id=_name_service(n), since=packed_hour, until=packed_hour + hour
        ),
    }


def _list_reference_questions(
    connection: psycopg.Connection[Any], full_days: Sequence[date]
) -> dict[str, Question]:
    """Return the questions that hand-written SQL answers from a plain table, by name.

    The table is not partitioned. The questions are comparable to those of `list_questions`.
    """
    start = datetime.combine(full_days[0], clock(), UTC)
    end = datetime.combine(full_days[-1] + timedelta(days=1), clock(), UTC)
    plain_hour = datetime.combine(full_days[-1], clock(12), UTC)

    def ask_reference(maker: str, name: str, low: datetime, high: datetime) -> None:
        values = {"maker": name, "low": low, "high": high}
        connection.execute(_REFERENCE_PAGE.format(maker=maker), values).fetchall()

    return {
        "SQL: person": lambda n: ask_reference("author", _name_person(n), start, end),
        "SQL: service, hour": lambda n: ask_reference(
            "client_id", _name_service(n), plain_hour, plain_hour + timedelta(hours=1)
        ),
    }


def _list_changes(page_size: int = PAGE_SIZE, **filters: Any) -> None:
    query = ChangesQuery(filters=VersionFilters(**filters), page_size=page_size)
    timeline.fetch_changes_page(HOST_READER, query)


def _name_person(number: int) -> str:
    return f"person-{number * 7 % PEOPLE}"


def _name_service(number: int) -> str:
    return f"service-{number % SERVICES}"


def measure_latency(rounds: int, ask: Question) -> Latency:
    """Ask a question `rounds` times, and return how long an answer takes.

    Before the measurement, five calls fill the caches. These calls are not measured.
    """
    for number in range(5):
        ask(number)
    times = []
    for number in range(rounds):
        began = time.perf_counter()
        ask(number)
        times.append((time.perf_counter() - began) * 1000)
    percentiles = quantiles(times, n=100)
    return Latency(round(percentiles[49], 1), round(percentiles[98], 1))


def _measure_path(day: date) -> Figures:
    """Measure lists of the changes of half an hour, filtered by a field.

    The first list is filtered by /rate, which changes in some versions. The second is filtered by
    /sum, which never changes, so the list has to compare all versions of the half hour.
    """
    start = datetime.combine(day, clock(12), UTC)
    end = start + timedelta(minutes=30)
    began = time.perf_counter()
    _list_changes(since=start, until=end, path="/rate", page_size=1)
    first_seconds = time.perf_counter() - began
    began = time.perf_counter()
    for _ in _generate_pages(VersionFilters(since=start, until=end, path="/sum")):
        pass
    seconds = time.perf_counter() - began
    pages = _generate_pages(VersionFilters(since=start, until=end))
    versions = sum(len(page.versions) for page in pages)
    return {
        "versions a second": round(versions / seconds),
        "first entry, ms": round(first_seconds * 1000),
    }


def _generate_pages(filters: VersionFilters) -> Iterator[ChangesPage]:
    """Yield all pages of a list of changes, without comparing versions."""
    token = None
    while True:
        query = ChangesQuery(filters=filters, page_size=500, page_token=token, include=frozenset())
        page = timeline.fetch_changes_page(HOST_READER, query)
        yield page
        token = page.next_token
        if token is None:
            return


def _list_targets(figures: Figures) -> list[Figures]:
    path, packed_path = figures["path"], figures["path, packed"]
    return [
        {"name": name, "value": value, "limit": limit, "met": value <= limit}
        for name, value, limit in (
            ("person, 7 days: p50, ms", figures["person"].p50, 60),
            ("person, 7 days: p99, ms", figures["person"].p99, 200),
            ("person, 90 days: p99, ms", figures["person, 90 days, nothing"].p99, 150),
            ("service, plain hour: p99, ms", figures["service, plain hour"].p99, 150),
            ("service, packed hour: p99, ms", figures["service, packed hour"].p99, 150),
            ("added to a packed day, %", round(100 * figures["share"], 2), 3),
            ("field: first entry, ms", path["first entry, ms"], 1_000),
            *(
                (f"memory of a page, {name}, MB", megabytes, changes_memory.MOST_MEGABYTES)
                for name, megabytes in figures["memory"].items()
            ),
            ("field: µs a version", round(1e6 / max(1, path["versions a second"])), 50),
            ("field, packed: first entry, ms", packed_path["first entry, ms"], 1_000),
            (
                "field, packed: µs a version",
                round(1e6 / max(1, packed_path["versions a second"])),
                50,
            ),
        )
    ]


def _print_figures(figures: Figures) -> None:
    console = Console()
    table = Table("question", "p50, ms", "p99, ms")
    for name, value in figures.items():
        if isinstance(value, Latency):
            table.add_row(name, str(value.p50), str(value.p99))
    console.print(table)
