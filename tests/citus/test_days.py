"""Days of a distributed installation are created, dropped and replaced on all nodes.

Readers on any node wait only for a moment.
"""

import threading
import time
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from django.db import connection
from psycopg import sql

from history.common import clock
from history.kinds.entities import CHILDREN, get_root
from history.retention import catalog
from history.retention.indexing import add_missing_indexes
from history.retention.plan import PartitionPolicy
from history.retention.runs import StepResult
from history.retention.search_keys import remove_old_keys
from history.store import change_indexes
from history.store.days import days
from history.store.days.days import DayState
from history.store.days.window import Window
from history.store.distribution import disk_use
from history.store.distribution.disk_use import measure_disk_use
from tests.citus.cluster import Citus
from tests.db.partitioned import execute_plans

TODAY = clock.now().date()
OLD = TODAY - timedelta(5)
TABLE = get_root().table


def test_maintain_creates_and_drops_days_on_all_nodes(distributed: Citus) -> None:
    plain = distributed.connect()
    days.create_partition(plain, TABLE, OLD)
    policy = PartitionPolicy(Window(TODAY - timedelta(1), TODAY + timedelta(2)), TODAY)
    outcome = execute_plans(policy)
    connection.close()
    assert (outcome.broken, outcome.busy) == ([], [])
    assert outcome.dropped == [days.build_partition_name(TABLE, OLD)]
    assert 0 < outcome.longest_detach < 60
    new_partition = days.build_partition_name(TABLE, TODAY + timedelta(2))
    assert new_partition in outcome.created
    for node in range(3):
        assert distributed.fetch_rows(
            "SELECT to_regclass(%s) IS NULL, to_regclass(%s) IS NOT NULL",
            [days.build_partition_name(TABLE, OLD), new_partition],
            node=node,
        ) == [(True, True)]
    [(shards,)] = distributed.fetch_rows(
        "SELECT count(*) FROM pg_dist_shard WHERE logicalrelid = %s::regclass", [new_partition]
    )
    assert shards == 4


def test_maintain_creates_missing_change_indexes_on_all_days_of_a_cluster(
    distributed: Citus,
) -> None:
    """A cluster of an earlier release has no such indexes. A new cluster gets them from
    `distribute`."""
    plain = distributed.connect()
    days.create_partition(plain, TABLE, OLD)
    assert change_indexes.find_missing(plain, [TABLE]) == []
    for index in change_indexes.CHANGE_INDEXES:
        plain.execute(f"DROP INDEX {change_indexes.build_index_name(TABLE, index)}")
    for command in change_indexes.build_commands(TABLE):
        plain.execute(command)
    missing = change_indexes.find_missing(plain, [TABLE])
    assert len(missing) >= 3 * 4
    outcome = StepResult()
    assert add_missing_indexes(plain, outcome) == len(missing)
    assert (outcome.busy, outcome.broken) == ([], [])
    assert change_indexes.find_missing(plain, [TABLE]) == []
    for node in range(3):
        assert distributed.fetch_rows(
            "SELECT count(*) FROM pg_index JOIN pg_class ON oid = indexrelid"
            " WHERE NOT indisvalid AND relkind = 'i'",
            node=node,
        ) == [(0,)]
    days.drop_partition(plain, TABLE, OLD)


def test_day_cannot_be_created_while_citus_moves_shards(distributed: Citus) -> None:
    """Citus refuses new shards during the move, with an error that has no code of its own."""
    plain, moving = distributed.connect(), distributed.connect()
    [(shard, host, port)] = distributed.fetch_rows(
        "SELECT shardid, nodename, nodeport FROM citus_shards WHERE table_name = %s::regclass"
        " ORDER BY 1 LIMIT 1",
        [TABLE],
    )
    [(to_host, to_port)] = distributed.fetch_rows(
        "SELECT nodename, nodeport FROM pg_dist_node WHERE shouldhaveshards"
        " AND (nodename, nodeport) <> (%s, %s) LIMIT 1",
        [host, port],
    )
    day = TODAY + timedelta(9)
    moving.execute("BEGIN")
    moving.execute(
        "SELECT citus_move_shard_placement(%s, %s, %s, %s, %s, 'block_writes')",
        [shard, host, port, to_host, to_port],
    )
    with pytest.raises(psycopg.errors.LockNotAvailable, match="shards are being moved"):
        days.create_partition(plain, TABLE, day, wait_s=0.1)
    moving.execute("ROLLBACK")
    assert days.create_partition(plain, TABLE, day)
    plain.execute(f"DROP TABLE {days.build_partition_name(TABLE, day)}")


@pytest.mark.parametrize("node", [0, 1])
def test_drop_of_a_day_waits_for_transactions_on_any_node_and_does_not_block_new_queries(
    distributed: Citus, node: int
) -> None:
    plain, reader = distributed.connect(), distributed.connect(node)
    days.create_partition(plain, TABLE, OLD)
    reader.execute("BEGIN")
    reader.execute(f"SELECT count(*) FROM {TABLE}")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        days.drop_partition(plain, TABLE, OLD, wait_s=1)
    assert days.locate_day(plain, TABLE, OLD).state is DayState.ATTACHED
    other_reader = distributed.connect(node)
    other_reader.execute("SET statement_timeout TO '20s'")
    waits: list[float] = []
    dropping = threading.Thread(
        target=lambda: days.drop_partition(plain, TABLE, OLD, wait_s=30, report_wait=waits.append)
    )
    dropping.start()
    for _ in range(3):
        other_reader.execute(f"SELECT count(*) FROM {TABLE}")  # must not wait for long
        time.sleep(0.1)
    reader.execute("COMMIT")
    dropping.join()
    [waited] = waits
    assert waited >= 0.3
    assert days.locate_day(plain, TABLE, OLD).state is DayState.ABSENT


def test_filled_table_replaces_empty_day_on_all_nodes(distributed: Citus) -> None:
    plain = distributed.connect()
    days.create_partition(plain, TABLE, OLD)
    place = days.locate_day(plain, TABLE, OLD)
    noon = datetime(OLD.year, OLD.month, OLD.day, 12, tzinfo=UTC)
    new = place._replace(child=place.new)
    days.create_detached_table(plain, new, OLD)
    plain.execute(
        f"INSERT INTO {new.child.as_string(plain)} (id, version, data, updated_at, client_id, type)"
        " SELECT 'r' || n, n, '{}', %s, 'x', 1 FROM generate_series(1, 100) n",
        [noon],
    )
    days.replace_table(plain, TABLE, OLD)
    name = days.build_partition_name(TABLE, OLD)
    assert distributed.fetch_rows(f"SELECT count(*), pg_relation_size('{name}') FROM {name}") == [
        (100, 0)
    ]
    # Sizes and rows are those of all nodes.
    plain.execute(f"ANALYZE {name}")
    [(size, shards)] = plain.execute(
        "SELECT citus_total_relation_size(%(name)s), count(*) FROM pg_dist_shard"
        " WHERE logicalrelid = %(name)s::regclass",
        {"name": name},
    ).fetchall()
    usage = measure_disk_use(plain, [name])[name]
    assert (usage.rows, len(usage.shards)) == (100, shards)
    # The whole counts the empty table of the coordinator too.
    assert size / 2 < usage.bytes <= size
    [part] = [
        partition
        for partition in catalog.read_partitions(connection, [TABLE])
        if partition.name == name
    ]
    assert (part.rows, part.bytes) == (100, usage.bytes)
    connection.close()
    days.drop_partition(plain, TABLE, OLD)


def test_shard_that_is_dropped_while_it_is_measured_counts_as_empty(distributed: Citus) -> None:
    """A swap drops the old shards of a day while other commands measure the day."""
    plain, worker = distributed.connect(), distributed.connect(1)
    days.create_partition(plain, TABLE, OLD)
    name = days.build_partition_name(TABLE, OLD)
    statement = sql.SQL(disk_use._OF_NODE).format(names=sql.Literal([name]))
    with worker.transaction():
        worker.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        worker.execute("SELECT FROM pg_class")  # PostgreSQL takes the snapshot now
        days.drop_partition(plain, TABLE, OLD)
        [(tables,)] = worker.execute(statement).fetchall()
    _, table, indexes, _, shards = tables[name]
    assert (table, indexes, {*shards.values()}) == (0, 0, {0})


def test_worker_node_cannot_create_day(distributed: Citus) -> None:
    with pytest.raises(psycopg.errors.InternalError_, match="not allowed on this node"):
        days.create_partition(distributed.connect(1), TABLE, OLD - timedelta(1))


def test_retention_removes_old_search_keys_on_all_nodes(distributed: Citus) -> None:
    plain, kind = distributed.connect(), CHILDREN[0].name
    plain.execute(
        "INSERT INTO search_key VALUES ('1', 'n', %(kind)s, 'c1', %(old)s),"
        " ('2', 'n', %(kind)s, 'c1', %(new)s)",
        {"kind": kind, "old": OLD, "new": TODAY},
    )
    before = TODAY - timedelta(1)
    assert remove_old_keys(plain, before) == 1
    assert distributed.fetch_rows("SELECT value FROM search_key") == [("2",)]
    connection.close()


def test_error_names_default_partition_that_has_rows(distributed: Citus) -> None:
    plain = distributed.connect()
    day = TODAY - timedelta(8)
    plain.execute(f"CREATE TABLE product_default PARTITION OF {TABLE} DEFAULT")
    try:
        plain.execute(
            f"INSERT INTO {TABLE} (id, version, data, updated_at, client_id, type)"
            f" VALUES ('a', 1, '{{}}', '{day} 12:00+00', 'c', 1)"
        )
        with pytest.raises(days.DefaultPartitionError, match=r"partition public\.product_default "):
            days.create_partition(plain, TABLE, day)
    finally:
        plain.execute("DROP TABLE product_default")
