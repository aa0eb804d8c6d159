"""Compares two ways of writing a batch on the cluster of ANNALS_TEST_CITUS, and prints the rates:
`python -m tests.citus.writing [ROWS]`.

one: one distributed transaction for the rows of all nodes and the ledger, as Annals does it. by
node: the rows of each worker in a transaction of their own, which commits on one node, then the
ledger; the rows are grouped before the clock starts. Such a batch is not stored exactly once: ended
between two of its transactions, rows that are stored would be counted as repeated.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import psycopg

ROWS, SIZES, ROUNDS = 10_000, (50, 500, 5_000), 3
SOURCE = "writing"


def main() -> None:
    import django

    django.setup()
    from django.core.management import call_command
    from django.db import connection

    from history.daily import days
    from history.entities import root
    from tests.citus.cluster import database, served_by

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rows", type=int, nargs="?", default=ROWS, help="default: %(default)s")
    rows = parser.parse_args().rows
    with database(os.environ["ANNALS_TEST_CITUS"]) as citus, served_by(citus.url):
        call_command("migrate", verbosity=0)
        plain = citus.raw()
        days.create(plain, root().table, datetime.now(UTC).date())
        call_command("distribute", stdout=sys.stderr)
        connection.close()
        plain.execute(
            "INSERT INTO ingest_ledger (topic, topic_id, partition, first_offset, next_offset,"
            " epoch, read, stored, repeated, expired, quarantined, skipped, lost, halted_why,"
            " updated_at, checked_at) VALUES (%s, 'i', 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, '', now(),"
            " now())", [SOURCE]
        )  # fmt: skip
        print(json.dumps(_compare(plain, root().table, rows), indent=2))


def _compare(plain: psycopg.Connection, table: str, rows: int) -> dict[str, dict[str, float]]:
    ways: dict[str, Callable[[psycopg.Connection, str, list], None]] = {
        "one": _one, "by node": _by_node
    }  # fmt: skip
    found: dict[str, dict[str, float]] = {}
    number = 0
    for size in SIZES:
        rates: defaultdict[str, list[float]] = defaultdict(list)
        for _ in range(ROUNDS):
            for name, way in ways.items():
                count = min(rows, size * 20)
                batches = list(_batches(plain, table, number, count, size))
                number += count
                began = time.perf_counter()
                for batch in batches:
                    way(plain, table, batch)
                rates[name].append(count / (time.perf_counter() - began))
                print(size, name, round(rates[name][-1]), file=sys.stderr)
        found[f"{size} rows a batch"] = {  # in turn, so that other programs disturb both
            f"{name}, rows/s": round(statistics.median(each)) for name, each in rates.items()
        }
    return found


def _batches(
    plain: psycopg.Connection, table: str, first: int, count: int, size: int
) -> Iterator[list[tuple[int, str]]]:
    """Ids with the port of their worker."""
    ids = [f"w{number}" for number in range(first, first + count)]
    nodes = dict(plain.execute(
        "SELECT id, nodeport FROM unnest(%s::text[]) id JOIN pg_dist_shard"
        " ON logicalrelid = %s::regclass AND hashtext(id) BETWEEN shardminvalue::int"
        " AND shardmaxvalue::int JOIN pg_dist_shard_placement USING (shardid)", [ids, table],
    ).fetchall())  # fmt: skip
    assert len(nodes) == count
    for start in range(0, count, size):
        yield [(nodes[id], id) for id in ids[start : start + size]]


def _copy(plain: psycopg.Connection, table: str, ids: list[str]) -> None:
    document, moment = json.dumps({"text": "x" * 1_500}), datetime.now(UTC)
    columns = "id, version, data, updated_at, client_id, type"
    with plain.cursor().copy(f"COPY {table} ({columns}) FROM STDIN") as stream:
        for id in ids:
            stream.write_row((id, 0, document, moment, "writing", 1))


def _ledger(plain: psycopg.Connection, count: int) -> None:
    plain.execute(
        "UPDATE ingest_ledger SET next_offset = next_offset + %s, stored = stored + %s"
        " WHERE topic = %s", [count, count, SOURCE]
    )  # fmt: skip


def _one(plain: psycopg.Connection, table: str, batch: list[tuple[int, str]]) -> None:
    with plain.transaction():
        _copy(plain, table, [id for _, id in batch])
        _ledger(plain, len(batch))


def _by_node(plain: psycopg.Connection, table: str, batch: list[tuple[int, str]]) -> None:
    groups: defaultdict[int, list[str]] = defaultdict(list)
    for node, id in batch:
        groups[node].append(id)
    for ids in groups.values():
        with plain.transaction():
            _copy(plain, table, ids)
    _ledger(plain, len(batch))


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "annals.settings")
    os.environ.setdefault("DATABASE_URL", os.environ.get("ANNALS_TEST_CITUS", ""))
    os.environ.setdefault("ANNALS_DEMO", "true")
    main()
