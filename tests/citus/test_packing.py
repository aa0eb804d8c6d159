"""Packed days of a distributed installation."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.db import connection
from psycopg.conninfo import conninfo_to_dict

from history.common import clock
from history.retention import catalog, cluster_swap, packing
from history.retention.archive import restore
from history.retention.archive.store import ArchiveStore
from history.retention.archive.write import archive_day
from history.retention.cluster_swap import IdRange
from history.store.days import day_locks, days
from history.store.days.canonical import CanonicalRow, Connection, stream_versions
from history.store.days.table_swap import ChangedMeanwhileError
from tests.citus.cluster import Citus
from tests.citus.cluster_fixtures import own_labels, tables, transactional_db
from tests.consuming import wait_until
from tests.db.partitioned import pack_finished_days, plain, record_all_topics_as_read
from tests.db.test_packing import DAY, ROOT, TASK, fill, read_blocks, read_rows

__all__ = ["own_labels", "plain", "tables", "transactional_db"]

pytestmark = pytest.mark.usefixtures("tables")


def insert(plain: Connection, id: str) -> None:
    plain.execute(
        f"INSERT INTO {ROOT.table} (id, version, data, updated_at, client_id, type)"
        " VALUES (%s, 1, '{}', %s, 'x', 1)",
        [id, f"{DAY} 12:00:00+00"],
    )


def test_pack_and_unpack_keep_every_version(citus: Citus, plain: Connection) -> None:
    fill(plain)
    before = {entity: read_rows(plain, entity) for entity in (ROOT, TASK)}
    for entity in (ROOT, TASK):
        packed = packing.pack_day(plain, entity, DAY)
        assert packed.rows == len(before[entity])
        assert read_blocks(plain, entity) != []
        assert read_rows(plain, entity) == before[entity]
        assert days.is_packed(plain, entity.table, DAY)
    [(shards,)] = citus.fetch_rows(
        "SELECT count(*) FROM pg_dist_shard WHERE logicalrelid = %s::regclass",
        [days.build_partition_name(ROOT.table, DAY)],
    )
    assert shards == 4
    insert(plain, "late")
    packing.pack_day(plain, ROOT, DAY)
    for entity in (ROOT, TASK):
        packing.unpack_day(plain, entity, DAY)
        assert read_blocks(plain, entity) == []
        assert len(read_rows(plain, entity)) == len(before[entity]) + (entity is ROOT)
        assert not days.is_packed(plain, entity.table, DAY)


def test_day_is_packed_and_unpacked_in_ranges_of_document_ids(
    plain: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Citus must not collect the rows of a day as an intermediate result on one node. The test sets
    the limit of Citus for intermediate results to the minimum."""
    fill(plain)
    before = read_rows(plain, ROOT)
    monkeypatch.setattr(cluster_swap, "RANGE_BYTES", 16 * 1024)
    child = days.locate_day(plain, ROOT.table, DAY).child
    parts = cluster_swap.split_table(plain, child)
    assert len(parts) > 3
    stored = [stream_versions(plain, ROOT, part.select_from(child)) for part in parts]
    assert list(chain.from_iterable(stored)) == before
    plain.execute("SET citus.max_intermediate_result_size TO '1kB'")
    for rewrite in (packing.pack_day, packing.unpack_day):
        assert rewrite(plain, ROOT, DAY).rows == len(before)
        assert read_rows(plain, ROOT) == before


def test_pack_leaves_day_unchanged_when_some_rows_were_not_read(
    plain: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This would happen if the nodes sorted ids in different orders."""
    fill(plain)
    before = read_rows(plain, ROOT)
    parts = [IdRange(None, before[9][0]), IdRange(before[-1][0], None)]
    monkeypatch.setattr(cluster_swap, "split_table", lambda *_: parts)
    with pytest.raises(packing.WrongRowsError, match="stays as it is"):
        packing.pack_day(plain, ROOT, DAY)
    assert (read_rows(plain, ROOT), read_blocks(plain)) == (before, [])


def test_dictionary_samples_come_from_each_shard(
    citus: Citus, plain: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    days.create_partition(plain, ROOT.table, DAY)
    plain.execute(
        f"INSERT INTO {ROOT.table} (id, version, data, updated_at, client_id, type)"
        " SELECT 'd' || n, 1, jsonb_build_object('id', 'd' || n, 'text', repeat('x', 1500)),"
        " %s, 'x', 1"
        " FROM generate_series(1, 800) AS n",
        [f"{DAY} 12:00:00+00"],
    )
    monkeypatch.setattr(packing, "SAMPLES", 100)
    rewrite = packing.DayRewrite(plain, ROOT, DAY, 0, lambda _: None)
    sample = rewrite._sample_snapshots(days.locate_day(plain, ROOT.table, DAY))
    ids = [json.loads(text)["id"] for text in sample]
    assert 20 < len(ids) <= 100
    [(shards,)] = citus.fetch_rows(
        "SELECT count(DISTINCT get_shard_id_for_distribution_column(%s, id))"
        " FROM unnest(%s::text[]) AS id",
        [ROOT.table, ids],
    )
    assert shards == 4


def test_pack_checks_free_disk_of_each_node(
    citus: Citus, plain: Connection, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(plain)
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, disk_gb=1)
    child = days.locate_day(plain, ROOT.table, DAY).child
    uses = cluster_swap.measure_nodes(plain, child)
    ports = [conninfo_to_dict(url)["port"] for url in citus.urls]
    assert [use.node for use in uses] == [f"{plain.info.host}:{port}" for port in ports]
    assert uses[0].table == 0
    assert all(0 < use.table < use.database for use in uses[1:])
    full = [*uses[:-1], uses[-1]._replace(table=10**9)]
    monkeypatch.setattr(cluster_swap, "measure_nodes", lambda *_: full)
    with pytest.raises(packing.NotPackableError, match=rf"1\.1 GiB of disk on {uses[-1].node} for"):
        packing.pack_day(plain, ROOT, DAY)


def test_maintain_packs_no_empty_days_on_a_cluster(plain: Connection) -> None:
    fill(plain)
    before = read_rows(plain, ROOT)
    days.create_partition(plain, ROOT.table, DAY - timedelta(1))
    record_all_topics_as_read()
    parts = catalog.read_partitions(connection, [ROOT.table, TASK.table])
    assert {part.shards for part in parts} == {4}
    overdue = packing.find_overdue_days(parts, clock.now().date(), 2)
    assert (ROOT.table, DAY - timedelta(1)) not in overdue
    outcome = pack_finished_days(clock.now().date())
    assert (outcome.exit_code, outcome.broken) == (0, [])
    assert sorted(outcome.packed) == sorted(
        days.build_partition_name(entity.table, DAY) for entity in (ROOT, TASK)
    )
    assert read_rows(plain, ROOT) == before


@pytest.mark.parametrize("change", ["insert", "delete"])
def test_pack_fails_when_rows_of_the_day_change_before_its_table_is_replaced(
    change: str, citus: Citus, plain: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(plain)
    insert(plain, "first")
    before = read_rows(plain, ROOT)
    replace_table = days.replace_distributed_table

    def replace(*arguments: Any) -> None:
        with citus.connect() as other_session:
            if change == "insert":
                insert(other_session, "second")
            else:
                other_session.execute(f"DELETE FROM {ROOT.table} WHERE id = 'first'")
        replace_table(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(days, "replace_distributed_table", replace)
        with pytest.raises(ChangedMeanwhileError, match="its rows changed while"):
            packing.pack_day(plain, ROOT, DAY)
    assert read_blocks(plain) == []
    expected = len(before) + (1 if change == "insert" else -1)
    assert len(read_rows(plain, ROOT)) == expected
    assert packing.pack_day(plain, ROOT, DAY).rows == expected
    connection.close()


@pytest.mark.parametrize(("holder", "seconds"), [("page", 0.3), ("vacuum of TOAST", 1)])
def test_swap_of_packed_table_waits_for_session_that_reads_table_or_vacuums(
    citus: Citus, plain: Connection, monkeypatch: pytest.MonkeyPatch, holder: str, seconds: float
) -> None:
    """The swap must succeed in its first attempt. Reading a page of a timeline can take longer than
    a short lock timeout, and PostgreSQL cancels an autovacuum only after a second."""
    fill(plain)
    before = read_rows(plain, ROOT)
    node, query = 0, f"SELECT count(*) FROM {ROOT.table}"
    other_session = citus.connect()
    if holder != "page":
        node, other_session = 1, citus.connect(1)
        other_session.execute("SET citus.override_table_visibility TO off")
        [toast, *_] = other_session.execute(
            "SELECT reltoastrelid::regclass::text FROM pg_class"
            " WHERE relkind = 'r' AND relname LIKE %s ORDER BY relname",
            [f"{days.build_partition_name(ROOT.table, DAY)}_%"],
        ).fetchall()
        query = f"SELECT count(*) FROM {toast[0]}"
    waiting = "SELECT FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'"
    replace_table = days.replace_distributed_table

    def end_reading() -> None:
        wait_until(lambda: citus.fetch_rows(waiting, node=node), "the swap does not wait", 20)
        time.sleep(seconds)
        other_session.execute("COMMIT")

    with ThreadPoolExecutor(1) as pool:

        def replace(*arguments: Any) -> None:
            monkeypatch.setattr(day_locks, "LOCK_WAIT_S", 0)
            other_session.execute("BEGIN")
            other_session.execute(query)
            ended.append(pool.submit(end_reading))
            replace_table(*arguments)

        ended: list[Future[None]] = []
        monkeypatch.setattr(days, "replace_distributed_table", replace)
        assert packing.pack_day(plain, ROOT, DAY).rows == len(before)
        ended[0].result()
    assert read_rows(plain, ROOT) == before
    assert days.is_packed(plain, ROOT.table, DAY)


def test_pack_completes_when_a_session_asks_for_exclusive_lock_on_the_day_meanwhile(
    citus: Citus, plain: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session waits for the reader of the current range, and the reader of the next range waits
    for the session. If the transaction that writes held a lock on the day, too, all would wait for
    ever."""
    fill(plain)
    before = read_rows(plain, ROOT)
    monkeypatch.setattr(cluster_swap, "RANGE_BYTES", 64 * 1024)
    name = days.build_partition_name(ROOT.table, DAY)
    waiting = "SELECT FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'"
    read_range = packing.stream_versions
    locked: list[Future[None]] = []

    def lock_day() -> None:
        with citus.connect() as session, session.transaction():
            session.execute(f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE")

    with ThreadPoolExecutor(1) as pool:

        def read_and_lock(*arguments: Any, **options: Any) -> Iterator[CanonicalRow]:
            for number, row in enumerate(read_range(*arguments, **options)):
                if number == 1 and not locked:
                    locked.append(pool.submit(lock_day))
                    wait_until(lambda: citus.fetch_rows(waiting), "nobody waits for the day", 20)
                yield row

        monkeypatch.setattr(packing, "stream_versions", read_and_lock)
        assert packing.pack_day(plain, ROOT, DAY).rows == len(before)
        locked[0].result()
    assert read_rows(plain, ROOT) == before


def test_restore_keeps_row_that_was_written_during_the_restore(
    citus: Citus, plain: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(plain)
    before, store = read_rows(plain, ROOT), ArchiveStore(str(tmp_path))
    archive_day(plain, store, ROOT, DAY, days.locate_day(plain, ROOT.table, DAY).child)
    plain.execute(f"DELETE FROM {ROOT.table} WHERE id = %s", [before[0][0]])
    load_rows = restore._load_archived_rows

    def load_and_insert(*arguments: Any) -> None:
        load_rows(*arguments)
        with citus.connect() as other_session:
            insert(other_session, "late")

    monkeypatch.setattr(restore, "_load_archived_rows", load_and_insert)
    restore.restore_day(plain, store, ROOT, DAY)
    rows = read_rows(plain, ROOT)
    assert [row for row in rows if row[0] != "late"] == before
    assert len(rows) == len(before) + 1
