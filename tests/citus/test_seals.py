"""Seals of distributed tables."""

import threading
import time
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from history.kinds.entities import CHILDREN, ENTITIES, get_root
from history.retention.seals import day_snapshot, late_rows
from history.retention.seals.seal import seal_day
from history.retention.seals.verification import verify_days
from history.store.days import day_locks, days
from history.store.days.canonical import Connection
from tests.citus.cluster import Citus
from tests.citus.cluster_fixtures import own_labels, set_clock, tables, transactional_db
from tests.db.partitioned import connect_plainly, get_day

__all__ = ["own_labels", "set_clock", "tables", "transactional_db"]

pytestmark = pytest.mark.usefixtures("tables")
OLD = get_day(-5)
NOON = datetime(OLD.year, OLD.month, OLD.day, 12, tzinfo=UTC)
CHILD = CHILDREN[0]


def insert(
    plain: Connection, table: str, id: str, application: str | None = None, moment: datetime = NOON
) -> None:
    names = "id, version, data, updated_at, client_id, type"
    child = "" if application is None else ", product_instance_id"
    values = [id, moment, *([] if application is None else [application])]
    with plain.cursor() as cursor, cursor.copy(f"COPY {table} ({names}{child}) FROM STDIN") as copy:
        copy.write_row([values[0], 1, "{}", values[1], "test", 1, *values[2:]])


def note_late_row(plain: Connection, id: str) -> None:
    """Note a late row with the statement that ingest uses."""
    plain.execute(
        'INSERT INTO late_row ("table", day, row_id, version, row_hash, topic, partition, "offset",'
        " noted_at, sealed) SELECT %s, %s, id, version, sha256(convert_to(concat_ws(',',"
        " octet_length(id) || ':' || id, version,"
        " (extract(epoch FROM updated_at) * 1000000)::bigint,"
        " octet_length(client_id) || ':' || client_id, '-', type,"
        " octet_length(data::text) || ':' || data::text), 'UTF8')), 't', 0, 1, now(), false"
        f" FROM {get_root().table} WHERE id = %s",
        [get_root().table, OLD, id],
    )


@pytest.mark.parametrize("node", [0, 1])
def test_seal_waits_for_uncommitted_row_on_any_node(citus: Citus, node: int) -> None:
    """The writing transaction found the day unsealed, so its row must be in the seal."""
    table = get_root().table
    with connect_plainly() as plain, psycopg.connect(citus.urls[node]) as writer:
        days.create_partition(plain, table, OLD)
        insert(plain, table, "first")
        insert(writer, table, "second")
        ended: list[float] = []

        def commit() -> None:
            time.sleep(0.5)
            writer.commit()
            ended.append(time.monotonic())

        thread = threading.Thread(target=commit)
        thread.start()
        seal = seal_day(plain, get_root(), OLD)
        thread.join()
        assert seal.rows == 2
        assert [verdict.fault for verdict in verify_days(plain, get_root())] == [None]


def test_seal_is_refused_while_a_writing_transaction_stays_open(
    citus: Citus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(day_locks, "LOCK_WAIT_S", 0.1)
    monkeypatch.setattr(day_snapshot, "WAIT", "200ms")
    table = get_root().table
    with connect_plainly() as plain, psycopg.connect(citus.urls[1]) as writer:
        days.create_partition(plain, table, OLD)
        insert(plain, table, "first")
        insert(writer, table, "second")
        with pytest.raises(psycopg.errors.LockNotAvailable, match="stays open"):
            seal_day(plain, get_root(), OLD)
        writer.rollback()
        assert seal_day(plain, get_root(), OLD).rows == 1


def test_seal_is_refused_while_a_node_has_a_prepared_transaction(
    citus: Citus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row of the prepared transaction becomes visible later. It would be neither in the seal
    nor noted as late."""
    monkeypatch.setattr(day_locks, "LOCK_WAIT_S", 0.1)
    table, worker = get_root().table, citus.connect(1)
    with connect_plainly() as plain:
        days.create_partition(plain, table, OLD)
        insert(plain, table, "first")
        [(shard,)] = citus.fetch_rows(
            "SELECT shardid FROM pg_dist_shard_placement JOIN pg_dist_shard USING (shardid)"
            " WHERE logicalrelid = %s::regclass AND nodeport = %s LIMIT 1",
            [table, worker.info.port],
        )
        worker.execute("SET citus.enable_manual_changes_to_shards TO on")
        worker.execute("BEGIN")
        insert(worker, f"{table}_{shard}", "second")
        worker.execute("PREPARE TRANSACTION 'left'")  # a name that Citus leaves alone
        try:
            with pytest.raises(psycopg.errors.LockNotAvailable, match="left a prepared"):
                seal_day(plain, get_root(), OLD)
        finally:
            worker.execute("COMMIT PREPARED 'left'")
        assert seal_day(plain, get_root(), OLD).rows == 2


def test_row_that_arrives_during_sealing_is_sealed_or_noted_as_late(
    citus: Citus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row arrives after the late rows were read. So the day is read a second time."""
    table, calls = get_root().table, []
    include = late_rows.include_late_rows

    def seal_with_a_row(connection: Connection, name: str, of: object) -> None:
        include(connection, name, OLD)
        if not calls:  # the late rows were read, and the transaction is still open
            with citus.connect(1) as other_session, other_session.transaction():
                insert(other_session, table, "late")
                note_late_row(other_session, "late")
        calls.append(of)

    monkeypatch.setattr(late_rows, "include_late_rows", seal_with_a_row)
    with connect_plainly() as plain:
        days.create_partition(plain, table, OLD)
        insert(plain, table, "first")
        seal = seal_day(plain, get_root(), OLD)
        assert len(calls) == 2
        assert seal.rows == 2
        assert [verdict.fault for verdict in verify_days(plain, get_root())] == [None]
        assert late_rows.count_late_rows(plain, table, OLD) == 0


def test_maintain_seals_day_with_rows_only_on_workers(citus: Citus) -> None:
    """The coordinator's own table is then empty, although the day has rows."""
    from django.db import connection

    from history.retention import catalog
    from history.retention.seals.seal import find_days_to_seal

    with connect_plainly() as plain:
        days.create_partition(plain, get_root().table, OLD)
        insert(plain, get_root().table, "first")
    parts = catalog.read_partitions(connection, [get_root().table])
    assert [part.bytes > 0 for part in parts] == [True]
    days_to_seal = find_days_to_seal(
        parts, OLD + timedelta(4), 2, find_waiting=lambda _: {}, tables=ENTITIES
    )
    assert [(rows.table, of) for rows, of in days_to_seal[0]] == [(get_root().table, OLD)]
