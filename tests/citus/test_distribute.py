"""`annals distribute`: if it is interrupted anywhere and repeated, no row is lost or doubled."""

import io
import random
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection, models
from django.db.backends.signals import connection_created
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations import AddField, AddIndex
from django.db.migrations.recorder import MigrationRecorder
from msgspec.structs import replace
from psycopg import sql

from annals.management.command_line import WORKER_REFUSAL, refuse_workers
from annals.management.partitions.nightly import DropExceptions, check_day_before_drop
from annals.operations import distribution_steps as needed
from annals.operations.distribution_steps import find_undistributed_tables
from annals.operations.server_checks import check_server_settings
from history.common import clock
from history.common.explained_errors import ExplainedError
from history.kinds.entities import CHILDREN, ENTITIES, EntityKind, get_root
from history.models import VERSION_MODELS, LateRow
from history.retention import packing
from history.retention.archive.restore import restore_day
from history.retention.archive.store import ArchiveError, ArchiveStore
from history.retention.archive.write import archive_day
from history.retention.seals.seal import seal_day
from history.retention.seals.verification import SealedDayChangedError
from history.store import distribution
from history.store.days import days
from history.store.days.canonical import Connection, stream_versions
from history.store.distribution import DISTRIBUTED_BY, WorkerAddressError
from ingest.store import rights
from tests.citus.cluster import Citus, use_database
from tests.command_shapes import parse_shaped
from tests.kill_points import ProcessKilled, kill_before_statement

CHILD, ARCHIVED, CHANGED = CHILDREN[:3]
TODAY = clock.now().date()
PACKED = TODAY - timedelta(3)
DAYS = (TODAY, PACKED)
APPLICATIONS = 7
NOTED = """
INSERT INTO late_row ("table", day, row_id, version, row_hash, topic, partition, "offset", noted_at,
    sealed) VALUES ('nowhere', '2020-01-01', %s, 1, '', 't', 0, 1, now(), false) RETURNING id
"""


def distribute(*words: str) -> str:
    output = io.StringIO()
    call_command("distribute", *words, stdout=output)
    return output.getvalue()


def insert_rows(plain: Connection, entity: EntityKind, day: date) -> None:
    """Store 300 versions of ten documents."""
    columns = {
        "id": "'c' || n %% 10",
        "version": "n",
        "data": "jsonb_build_object('n', n)",
        "updated_at": "%s::timestamptz + n * interval '1 s'",
        "client_id": "'test'",
        "type": "1",
    }
    if entity.parent is not None:
        columns["product_instance_id"] = f"'c' || n %% {APPLICATIONS}"
    plain.execute(
        f"INSERT INTO {entity.table} ({', '.join(columns)}) SELECT {', '.join(columns.values())}"
        " FROM generate_series(1, 300) n",
        [f"{day} 01:00:00+00"],
    )


@pytest.fixture(scope="module")
def filled(citus: Citus) -> Citus:
    """Tables before the distribution, with rows on two days. Three tables have a packed day."""
    plain = citus.connect()
    for entity in ENTITIES:
        for day in DAYS:
            days.create_partition(plain, entity.table, day)
            insert_rows(plain, entity, day)
    plain.execute(
        "INSERT INTO search_key SELECT 'v' || n, 'number', %s, 'c1', current_date"
        " FROM generate_series(1, 50) n",
        [get_root().name],
    )
    assert plain.execute(NOTED, ["before"]).fetchall() == [(1,)]
    # These days are packed before the distribution, so a trigger guards them.
    for entity in (CHILD, ARCHIVED, CHANGED):
        packing.pack_day(plain, entity, PACKED)
    return citus


def fetch_versions(citus: Citus) -> dict[str, list[tuple[Any, ...]]]:
    """Return the versions of each table and day, in order."""
    plain = citus.connect()
    return {
        f"{entity.table} {day}": list(
            stream_versions(plain, entity, days.locate_day(plain, entity.table, day).child)
        )
        for entity in ENTITIES
        for day in DAYS
    }


@pytest.fixture(autouse=True)
def reconnected() -> Iterator[None]:
    yield
    connection.close()


def test_distribute_explains_what_prevents_the_distribution(filled: Citus) -> None:
    plain = filled.connect()
    consumer = filled.connect(application_name="annals-consume")
    with pytest.raises(CommandError, match="a consumer is connected"):
        distribute()
    consumer.close()
    plain.execute(
        f"CREATE TABLE odd PARTITION OF {CHILD.table} FOR VALUES FROM ('2001-01-01') TO"
        " ('2001-02-01')"
    )
    with pytest.raises(CommandError, match="odd is not a day partition made by Annals"):
        distribute()
    plain.execute("DROP TABLE odd")
    with pytest.raises(needed.NotDistributableError, match="names a worker"):
        needed.check_cluster(filled.connect(1), [])


def test_distribute_says_how_to_register_missing_nodes(filled: Citus) -> None:
    plain = filled.connect()
    with plain.transaction(force_rollback=True):
        plain.execute("DELETE FROM pg_dist_node WHERE groupid <> 0")
        with pytest.raises(needed.NotDistributableError, match="has no worker"):
            needed.check_cluster(plain, [])
        plain.execute("DELETE FROM pg_dist_node")
        with pytest.raises(needed.NotDistributableError, match="citus_set_coordinator_host"):
            needed.check_cluster(plain, [])


def test_distribute_names_unreachable_worker_before_it_changes_anything(filled: Citus) -> None:
    plain = filled.connect()
    with plain.transaction(force_rollback=True):
        plain.execute(
            "UPDATE pg_dist_node SET nodeport = 1 WHERE nodeid IN"
            " (SELECT max(nodeid) FROM pg_dist_node)"
        )
        with pytest.raises(needed.NotDistributableError, match=r"cannot query the worker .*:1 "):
            needed.check_cluster(plain, [])


def test_migrate_refuses_to_run_on_a_worker(filled: Citus) -> None:
    with (
        use_database(filled.urls[1]),
        pytest.raises(CommandError, match="names a worker of a Citus cluster"),
    ):
        call_command("migrate", verbosity=0)


@pytest.mark.parametrize(
    "words",
    ["partitions maintain", "distribute", "grants --apply", "ledger --offline", "gaps", "capacity"],
)
def test_commands_refuse_to_run_on_a_worker(filled: Citus, words: str) -> None:
    """The test calls refuse_workers(), as the program `annals` does before it runs a command.

    The worker has no tables of Annals yet, so the refusal must come before any query of a table.
    """
    with use_database(filled.urls[1]):
        refuse_workers()
        try:
            with pytest.raises(
                (WorkerAddressError, CommandError), match="names a worker of a Citus cluster"
            ):
                call_command(*words.split())
        finally:
            connection_created.disconnect(dispatch_uid=WORKER_REFUSAL)


def test_distribute_reports_login_with_too_few_connections(citus: Citus) -> None:
    """PostgreSQL counts the connections of a login to all databases of a node together."""
    plain = citus.connect()
    plain.execute("CREATE ROLE few_connections CONNECTION LIMIT 9")
    try:
        with plain.transaction():
            plain.execute("SET LOCAL ROLE few_connections")
            workers = len(citus.urls) - 1
            needed.check_connections(plain, 2 * workers)
            with pytest.raises(needed.NotDistributableError, match=r"CONNECTION LIMIT 10$"):
                needed.check_connections(plain, 3 * workers)
    finally:
        plain.execute("DROP ROLE few_connections")


def test_dry_run_of_distribute_changes_nothing(filled: Citus) -> None:
    before = fetch_versions(filled)
    result = parse_shaped("distribute", distribute("--dry-run", "--json"))
    assert result["days"] != []
    assert result["done"] is False
    text = distribute("--dry-run")
    assert "distribute by id" in text
    assert "Nothing was changed." in text
    assert fetch_versions(filled) == before
    assert filled.fetch_rows("SELECT logicalrelid FROM pg_dist_partition") == []


def test_interrupted_distribution_is_completed_by_later_runs(filled: Citus) -> None:
    before, chance = fetch_versions(filled), random.Random(16)
    runs = killed = 0
    while True:
        runs += 1
        assert runs < 60
        try:
            with kill_before_statement(chance.randrange(15, 60)):
                distribute("--shards", "4")
        except ProcessKilled:
            killed += 1
            connection.close()
        else:
            break
    assert killed > 5
    assert fetch_versions(filled) == before
    _assert_distributed(filled)
    result = parse_shaped("distribute", distribute("--json"))
    assert (result["distributed"], result["days"], result["done"]) == ([], [], True)
    assert "Nothing was left to do" in distribute()
    with pytest.raises(CommandError, match="have 4 shards already"):
        distribute("--shards", "8")


def test_day_packed_before_distribution_can_be_unpacked(filled: Citus) -> None:
    before = fetch_versions(filled)
    packing.unpack_day(filled.connect(), CHILD, PACKED)
    assert fetch_versions(filled) == before
    assert filled.fetch_rows(f"SELECT count(*) FROM {CHILD.table}") == [(600,)]


def test_day_packed_before_distribution_can_be_restored(filled: Citus, tmp_path: Path) -> None:
    """A dropped day can be restored at once.

    If the day still exists but lacks a row, it must be unpacked before it can be restored.
    """
    plain, before, store = filled.connect(), fetch_versions(filled), ArchiveStore(str(tmp_path))
    source = days.locate_day(plain, ARCHIVED.table, PACKED).child
    archived = archive_day(plain, store, ARCHIVED, PACKED, source)
    plain.execute(sql.SQL("DELETE FROM {} WHERE id = 'c1'").format(source))
    with pytest.raises(ArchiveError, match=f"is packed: run `partitions unpack {PACKED}` first"):
        restore_day(plain, store, ARCHIVED, PACKED)
    packing.unpack_day(plain, ARCHIVED, PACKED)
    assert restore_day(plain, store, ARCHIVED, PACKED) == archived
    assert fetch_versions(filled) == before
    assert days.release_day(plain, ARCHIVED.table, PACKED)
    packing.pack_day(plain, ARCHIVED, PACKED)
    assert days.drop_partition(plain, ARCHIVED.table, PACKED)
    assert restore_day(plain, store, ARCHIVED, PACKED) == archived
    assert fetch_versions(filled) == before
    days.release_day(plain, ARCHIVED.table, PACKED)


def test_changed_day_that_was_packed_before_distribution_can_be_accepted_and_dropped(
    filled: Citus,
) -> None:
    """SQL changed the sealed day. It must be unpacked before the change can be accepted."""
    plain, before = filled.connect(), fetch_versions(filled)
    seal_day(plain, CHANGED, PACKED)
    child = days.locate_day(plain, CHANGED.table, PACKED).child
    plain.execute(sql.SQL("DELETE FROM {} WHERE id = 'c2'").format(child))
    connection.ensure_connection()
    accepted = DropExceptions(without_archive=True, accept_changed=PACKED, reason="a test")
    with pytest.raises(ExplainedError, match="is packed: run `partitions unpack"):
        check_day_before_drop(plain, CHANGED.table, PACKED, accepted)
    packing.unpack_day(plain, CHANGED, PACKED)
    with pytest.raises(SealedDayChangedError):
        check_day_before_drop(plain, CHANGED.table, PACKED, DropExceptions(without_archive=True))
    check_day_before_drop(plain, CHANGED.table, PACKED, accepted)
    assert days.drop_partition(plain, CHANGED.table, PACKED)
    days.create_partition(plain, CHANGED.table, PACKED)
    insert_rows(plain, CHANGED, PACKED)
    assert fetch_versions(filled) == before


def test_ids_of_new_rows_are_above_ids_of_rows_stored_before_distribution(filled: Citus) -> None:
    for node in range(len(filled.urls)):
        [(id,)] = filled.fetch_rows(NOTED, [f"of node {node}"], node=node)
        assert id == 2 if node == 0 else id > 1


def test_migration_after_distribution_changes_tables_on_all_nodes(filled: Citus) -> None:
    """Add a column with a default and an index to tables of versions and to a coordinator table."""
    old = MigrationLoader(connection).project_state()
    for model in (VERSION_MODELS[CHILD.name], VERSION_MODELS[get_root().name], LateRow):
        table, name = model._meta.db_table, model.__name__
        field = models.CharField(max_length=9, default="", db_default="new")
        index = models.Index(fields=["later"], name=f"{name[:20]}_later")
        steps = [AddField(name, "later", field), AddIndex(name, index)]
        states = [old]
        for step in steps:
            states.append(states[-1].clone())
            step.state_forwards("history", states[-1])
            with connection.schema_editor() as editor:
                step.database_forwards("history", editor, *states[-2:])
        for node in range(len(filled.urls)):
            rows = filled.fetch_rows(f"SELECT DISTINCT later FROM {table}", node=node)
            assert rows == [("new",)]
        day = TODAY + timedelta(3)
        if model is not LateRow:  # a day that is made afterwards has both
            days.create_partition(filled.connect(), table, day)
            connection.cursor().execute(f"DROP TABLE {days.build_partition_name(table, day)}")
        for step in reversed(steps):
            after = states.pop()
            with connection.schema_editor() as editor:
                step.database_backwards("history", editor, after, states[-1])
    MigrationRecorder(connection).record_applied("history", "9999_later")


def test_check_reports_kind_that_was_declared_after_distribution(
    filled: Citus, monkeypatch: pytest.MonkeyPatch
) -> None:
    distribute()
    plain = filled.connect()
    assert find_undistributed_tables(plain, rights.list_tables()) == []
    plain.execute("CREATE TABLE order_aud (id text)")
    monkeypatch.setattr(rights, "list_tables", lambda: {"order_aud", "no_aud"})
    monkeypatch.setattr(settings, "ANNALS", replace(settings.ANNALS, demo=False))
    try:
        texts = [setting.msg for setting in check_server_settings(databases=["default"])]
        assert "Only the coordinator has order_aud." in texts
    finally:
        plain.execute("DROP TABLE order_aud")


def _assert_distributed(citus: Citus) -> None:
    plain = citus.connect()
    distribution.forget_answer(plain)
    assert distribution.is_distributed(plain)
    columns = dict(
        citus.fetch_rows(
            "SELECT logicalrelid::text, column_to_column_name(logicalrelid, partkey)"
            " FROM pg_dist_partition WHERE partmethod = 'h'"
        )
    )
    assert {name: columns[name] for name in DISTRIBUTED_BY} == DISTRIBUTED_BY
    groups = citus.fetch_rows(
        "SELECT DISTINCT colocationid FROM pg_dist_partition WHERE partmethod = 'h'"
    )
    assert len(groups) == 1
    assert citus.fetch_rows(
        "SELECT DISTINCT shardid_count FROM (SELECT count(*) AS shardid_count"
        " FROM pg_dist_shard JOIN pg_dist_partition USING (logicalrelid)"
        " WHERE partmethod = 'h' GROUP BY logicalrelid) n"
    ) == [(4,)]
    for entity in ENTITIES:
        for day in DAYS:
            name = days.build_partition_name(entity.table, day)
            assert days.locate_day(plain, entity.table, day).state is days.DayState.ATTACHED
            assert citus.fetch_rows("SELECT pg_relation_size(%s)", [name]) == [(0,)]
    # Each node sees all rows of a distributed table, and the ledger.
    for node in range(len(citus.urls)):
        assert citus.fetch_rows(f"SELECT count(*) FROM {get_root().table}", node=node) == [(600,)]
        assert citus.fetch_rows("SELECT count(*) FROM ingest_ledger", node=node) == [(0,)]
