"""The tests of tests/db/test_transaction.py on distributed tables, and some more."""

import random
import threading
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from history.kinds.entities import get_root
from history.store.days import days
from history.store.search_index.keys import SearchKeyId, SearchKeyRow
from history.store.search_index.upsert import upsert_keys
from ingest.store import ledger
from ingest.store.session import open_connection
from ingest.store.transaction import BatchWriter
from tests.citus.cluster import Citus
from tests.citus.ingest_fixtures import ingested, on_worker
from tests.db import test_transaction as plain
from tests.db.ingested import CHILD_SOURCE, Ingested, find_faults, list_quarantined, read_counts
from tests.kill_points import ProcessKilled, kill_before_statement
from tests.messages import CHILD_TOPIC, NOW, make_value

__all__ = ["ingested", "on_worker"]

# Tests that do not hold on a cluster.
PLAIN_ONLY = {
    # test_message_is_quarantined_when_worker_cannot_create_its_day takes its place.
    "test_only_needed_days_are_created",
    "test_rows_of_a_batch_are_stored_sorted_by_id_then_by_offset",  # reads the order on disk
    "test_write_fails_when_a_trigger_drops_rows",  # Citus has no triggers
    # These look for waiting sessions on the coordinator, but the sessions wait on workers.
    "test_no_search_key_is_stored_for_refused_row",
    "test_batch_is_written_again_after_deadlock",
}
globals().update(
    {
        name: value
        for name, value in vars(plain).items()
        if name.startswith("test_") and name not in PLAIN_ONLY
    }
)


def make_child(name: str) -> bytes:
    return make_value(id=name, productInstanceId="a1")


def test_consumer_transaction_opens_only_one_connection_to_each_node(
    distributed: Citus, ingested: Ingested
) -> None:
    """The transaction writes search keys and creates a day. The connection limit of the login may
    not allow a connection for each shard."""
    keys = [
        SearchKeyRow(SearchKeyId(f"n{n:03}", "number", "task", "a1"), 20_000) for n in range(100)
    ]
    with open_connection() as session, session.transaction(force_rollback=True):
        upsert_keys(session, keys)
        days.create_partition(session, get_root().table, NOW.date() + timedelta(5))
        row = session.execute("SELECT citus_backend_gpid()").fetchone()
        assert row is not None
        opened = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
        for node in range(1, len(distributed.urls)):
            assert distributed.fetch_rows(opened, [f"citus_internal gpid={row[0]}"], node) == [(1,)]


def test_batch_is_stored_once_although_its_writer_is_killed_before_each_statement(
    distributed: Citus, ingested: Ingested
) -> None:
    """Each batch is written twice: first as new rows (fast path), then as repeated (slow path)."""
    body = [make_value(id=f"a{n}", version=0) for n in range(8)]
    ends = 0
    for source_rows, source in (
        (body, plain.SOURCE),
        ([make_child("t1"), make_child("t2")], CHILD_SOURCE),
    ):
        for _ in range(2):
            batch = ingested.make_batch(*source_rows, source=source)
            statements = 0
            while True:
                try:
                    with kill_before_statement(statements):
                        ingested.store(batch)
                except ProcessKilled:
                    ends += 1
                    statements += 1
                    ingested.writer.close()
                    ingested.writer = BatchWriter(open_connection)
                except ledger.FencedError:
                    break  # the writer was killed after its commit
                else:
                    break
            assert statements >= 3
    assert ends > 12
    assert read_counts() == {"next_offset": 16, "read": 16, "stored": 8, "repeated": 8}
    assert read_counts(CHILD_SOURCE) == {"next_offset": 4, "read": 4, "stored": 2, "repeated": 2}
    assert find_faults() == []


@pytest.mark.parametrize("name", [CHILD_TOPIC, plain.SOURCE.topic])
def test_consumer_writes_through_a_worker(
    distributed: Citus, on_worker: Ingested, name: str
) -> None:
    child_too = name == CHILD_TOPIC
    source = CHILD_SOURCE if child_too else plain.SOURCE
    more: dict[str, Any] = {"productInstanceId": "a1"} if child_too else {}
    bodies = [make_value(id=f"b{n}", data={"number": f"N{n}"}, **more) for n in range(20)]
    on_worker.write(*bodies, source=source)
    on_worker.write(
        *bodies, b"no json", make_value(id="b0", data={"other": 1}, **more), source=source
    )
    assert read_counts(source) == {
        "next_offset": 42,
        "read": 42,
        "stored": 20,
        "repeated": 20,
        "quarantined": 2,
    }
    assert find_faults() == []


def test_message_is_quarantined_when_worker_cannot_create_its_day(on_worker: Ingested) -> None:
    ahead = (NOW + timedelta(9)).replace(tzinfo=None).isoformat()
    on_worker.write(make_value(id="b1"), make_value(id="b2", updatedAt=ahead))
    assert read_counts() == {"next_offset": 2, "read": 2, "stored": 1, "quarantined": 1}
    assert [item["reason"] for item in list_quarantined()] == ["no_partition"]


def test_each_batch_is_stored_once_when_sessions_are_killed_at_any_moment(
    distributed: Citus, ingested: Ingested
) -> None:
    """The test kills sessions of the writer on the coordinator and on the workers."""
    chance, over = random.Random(5), threading.Event()

    def kill() -> None:
        killer = distributed.connect(int(chance.random() * 3))
        while not over.wait(chance.random() * 0.6):
            killer.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <>"
                " pg_backend_pid() AND datname = current_database()"
                " AND (application_name LIKE 'annals-consume%%'"
                " OR application_name LIKE 'citus_internal%%')"
            )

    killers = [threading.Thread(target=kill) for _ in range(2)]
    for killer in killers:
        killer.start()
    broken = number = 0
    try:
        while number < 12 or broken < 3:
            number += 1
            batch = ingested.make_batch(*(make_value(id=f"k{number}-{n}") for n in range(30)))
            while True:
                try:
                    ingested.store(batch)
                except ledger.FencedError:
                    break  # the commit had succeeded, and only its answer was lost
                except psycopg.Error:
                    broken += 1
                    ingested.writer.close()
                    ingested.writer = BatchWriter(open_connection)
                    over.wait(chance.random() * 0.3)
                else:
                    break
    finally:
        over.set()
        for killer in killers:
            killer.join()
    distributed.fetch_rows("SELECT recover_prepared_transactions()")
    assert read_counts() == dict.fromkeys(("next_offset", "read", "stored"), number * 30)
    assert find_faults() == []


def test_ingest_pace_is_recorded_at_most_once_in_ten_minutes(
    distributed: Citus, ingested: Ingested
) -> None:
    ingested.write(make_value(id="a1"))
    distributed.fetch_rows("DELETE FROM ingest_pace RETURNING 1")
    with open_connection() as session:
        for _ in range(2):
            ledger.record_pace(session)
    assert distributed.fetch_rows("SELECT read, stored FROM ingest_pace") == [(1, 1)]


def test_row_that_violates_an_added_constraint_is_quarantined_with_the_constraint_name(
    distributed: Citus, ingested: Ingested
) -> None:
    plain = distributed.connect()
    plain.execute(
        "ALTER TABLE product_instance_aud ADD CONSTRAINT theirs CHECK (author <> 'refused')"
    )
    try:
        ingested.write(make_value(id="a"), make_value(id="b", author="refused"), make_value(id="c"))
    finally:
        plain.execute("ALTER TABLE product_instance_aud DROP CONSTRAINT theirs")
    [row] = list_quarantined()
    assert row["offset"] == 1
    assert "the constraint theirs" in row["detail"]
    assert read_counts() == {"next_offset": 3, "read": 3, "stored": 2, "quarantined": 1}
    assert find_faults() == []
