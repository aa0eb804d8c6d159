"""The steps of `annals distribute`. Each step is one transaction, so it is done or not begun."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Final, LiteralString

from psycopg import sql

from history.common.explained_errors import ExplainedError
from history.kinds.entities import ENTITIES
from history.retention.catalog import Partition
from history.store import distribution
from history.store.days import days
from history.store.days.day_locks import LOCK_TIMEOUT_MS, retry_lock
from history.store.days.days import Connection, DayState
from history.store.distribution import COPIED, DISTRIBUTED_BY

_SELECT_CLUSTER_STATE: Final[LiteralString] = """
SELECT EXISTS (SELECT FROM pg_dist_node WHERE groupid = 0),
    (SELECT count(*) FROM pg_dist_node WHERE noderole = 'primary' AND shouldhaveshards),
    (SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = to_regclass(%s))
"""
_SELECT_UNREACHABLE_WORKER: Final[LiteralString] = """
SELECT nodename || ':' || nodeport, split_part(result, E'\\n', 1)
FROM run_command_on_workers('SELECT 1') WHERE NOT success ORDER BY 1 LIMIT 1
"""
_SELECT_CONSUMER_SESSION: Final[LiteralString] = """
SELECT pid, usename FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'annals-consume%' LIMIT 1
"""


# While rows are added to a table, each of its shards on a node needs a connection to the node.
# OTHER_COMMANDS is the number of further connections that the owner of the tables needs.
_SELECT_CONNECTION_LIMIT: Final[LiteralString] = """
SELECT rolname, rolconnlimit, (SELECT ceil(%s::numeric / count(*))::int FROM pg_dist_node
    WHERE noderole = 'primary' AND shouldhaveshards)
FROM pg_roles WHERE rolname = current_user AND NOT rolsuper AND rolconnlimit >= 0
"""
OTHER_COMMANDS: Final = 7


class NotDistributableError(ExplainedError, RuntimeError):
    """Raised if the database cannot be distributed. The message says why, and what to do."""


def check_cluster(connection: Connection, partitions: Iterable[Partition]) -> None:
    """Check that the cluster can take the tables.

    Args:
        partitions: The partitions of the tables of versions.

    Raises:
        NotDistributableError: The cluster cannot take them.
    """
    if not distribution.has_citus(connection):
        raise NotDistributableError(
            "this database has no Citus: run CREATE EXTENSION citus on the coordinator and on each "
            "worker, then citus_add_node(). See docs/citus.md"
        )
    if distribution.is_on_worker(connection):
        raise NotDistributableError(
            "DATABASE_URL names a worker: it must name the coordinator of the cluster"
        )
    row = connection.execute(_SELECT_CLUSTER_STATE, [ENTITIES[0].table]).fetchone()
    is_known, workers, owner = row or (False, 0, None)
    if not is_known:
        raise NotDistributableError(
            "the coordinator does not know its own address: run "
            "SELECT citus_set_coordinator_host('HOST', PORT)"
        )
    if not workers:
        raise NotDistributableError(
            "the cluster has no worker: run SELECT citus_add_node('HOST', PORT) for each worker"
        )
    if (unreachable := connection.execute(_SELECT_UNREACHABLE_WORKER).fetchone()) is not None:
        node, answer = unreachable
        raise NotDistributableError(
            f"this login cannot query the worker {node} from the coordinator: {answer}"
        )
    if not owner:
        raise NotDistributableError("only the owner of the tables can distribute them")
    for partition in partitions:
        if partition.day is None and not partition.restored:
            raise NotDistributableError(
                f"{partition.name} is not a day partition made by Annals: detach it, or replace it "
                "by day partitions"
            )
        if partition.state is DayState.PENDING:
            raise NotDistributableError(
                f"the detach of {partition.name} was interrupted: run `annals partitions maintain`"
            )


def refuse_consumers(connection: Connection) -> None:
    """Refuse to distribute while a consumer is connected.

    Raises:
        NotDistributableError: A consumer is connected.
    """
    row = connection.execute(_SELECT_CONSUMER_SESSION).fetchone()
    if row is not None:
        raise NotDistributableError(
            f"a consumer is connected (session {row[0]} of the login {row[1]!r}): stop all "
            "consumers, and start them again afterwards"
        )


def check_connections(connection: Connection, shards: int) -> None:
    """Check that the login may open enough connections to each node.

    The login needs a connection for each shard that a table has on the node, and OTHER_COMMANDS
    more.

    Args:
        shards: The number of shards of a table, on all nodes together.

    Raises:
        NotDistributableError: The login may not open enough connections.
    """
    row = connection.execute(_SELECT_CONNECTION_LIMIT, [shards]).fetchone()
    if row is None:
        return
    login, limit, shards_of_node = row
    if limit < shards_of_node + OTHER_COMMANDS:
        raise NotDistributableError(
            f"the login {login!r} may open {limit} connections to a node, but a table of {shards} "
            f"shards needs {shards_of_node} connections, and other commands need {OTHER_COMMANDS} "
            f"more: run ALTER ROLE {login} CONNECTION LIMIT {shards_of_node + OTHER_COMMANDS}"
        )


_SELECT_CITUS_TABLES: Final[LiteralString] = """
SELECT relname, repmodel = 't' FROM pg_dist_partition JOIN pg_class ON pg_class.oid = logicalrelid
WHERE relnamespace = 'public'::regnamespace
"""
_SELECT_EXISTING_TABLES: Final[LiteralString] = """
SELECT name FROM unnest(%s::text[]) name WHERE to_regclass(name) IS NOT NULL ORDER BY name
"""
_COUNT_SHARDS: Final[LiteralString] = """
SELECT count(*) FROM pg_dist_shard WHERE logicalrelid = to_regclass(%s)
"""


@dataclass(frozen=True, slots=True)
class DistributionPlan:
    """The work that is left until the tables are distributed.

    Attributes:
        partitioned_tables: The tables of versions that have to be distributed. They have a
            partition for each day.
        distributed_lookup_tables: The other tables that have to be distributed.
        shared_tables: The tables that have to be copied to each node or made reachable from it.
        days: The days with rows that are still on the coordinator only. The newest day is first,
            and is distributed first.
        shards: The number of shards of each table; 0 if no table is distributed yet.
    """

    partitioned_tables: Sequence[str]
    distributed_lookup_tables: Sequence[str]
    shared_tables: Sequence[str]
    days: Sequence[Partition]
    shards: int

    @property
    def done(self) -> bool:
        return not (
            self.partitioned_tables
            or self.distributed_lookup_tables
            or self.shared_tables
            or self.days
        )


def build_plan(
    connection: Connection, partitions: Sequence[Partition], local: Collection[str]
) -> DistributionPlan:
    """Find out which steps of `annals distribute` are left, without changing anything.

    Args:
        local: The tables that stay on the coordinator. Sessions on each node must be able to use
            them.
    """
    distributed_tables: dict[str, bool] = dict(connection.execute(_SELECT_CITUS_TABLES).fetchall())
    reachable = distributed_tables.keys() - {
        name for name in COPIED if not distributed_tables.get(name)
    }
    tables = [entity.table for entity in ENTITIES]
    partitioned_tables = [table for table in tables if table not in reachable]
    lookup_tables = [table for table in DISTRIBUTED_BY if table not in {*reachable, *tables}]
    row = connection.execute(_COUNT_SHARDS, [next(iter(set(tables) & reachable), None)]).fetchone()
    days_left = [
        partition
        for partition in partitions
        if partition.name not in reachable and get_day(partition) is not None
        if partition.state is DayState.DETACHED or partition.table in partitioned_tables
    ]
    days_left.sort(key=lambda partition: partition.name[-8:], reverse=True)
    return DistributionPlan(
        partitioned_tables=partitioned_tables,
        distributed_lookup_tables=lookup_tables,
        shared_tables=sorted({*local, *COPIED} - reachable),
        days=days_left,
        shards=row[0] if row else 0,
    )


def find_undistributed_tables(connection: Connection, local: Collection[str]) -> list[str]:
    """Return the tables that still have to be distributed, or made reachable from each node.

    These tables were created after `annals distribute`, for a new kind or by a migration. The list
    is empty if `annals distribute` was never run.

    Args:
        local: The tables that stay on the coordinator. Sessions on each node must be able to use
            them.
    """
    if not distribution.is_distributed(connection):
        return []
    expected = {*local, *DISTRIBUTED_BY}
    reachable = {name for name, _ in connection.execute(_SELECT_CITUS_TABLES)}
    rows = connection.execute(_SELECT_EXISTING_TABLES, [sorted(expected - reachable)])
    return [name for (name,) in rows]


def get_day(partition: Partition) -> date | None:
    """Return the UTC day of a partition, restored or not, or None if Annals did not make it."""
    if not partition.restored:
        return partition.day
    return datetime.strptime(partition.name[-8:], "%Y%m%d").replace(tzinfo=UTC).date()


# How many seconds a step waits for the lock of a table that others read.
WAIT_S: Final = 60.0

_SELECT_LAST_ID: Final[LiteralString] = """
SELECT pg_sequence_last_value(pg_get_serial_sequence(attrelid::regclass::text, attname)::regclass)
FROM pg_attribute WHERE attrelid = %s::regclass AND attname = 'id' AND attidentity <> ''
"""


def distribute_partitioned_table(
    connection: Connection, table: str, partitions: Iterable[Partition]
) -> None:
    """Detach all days of a table of versions, and distribute the empty table.

    Both happen in one transaction, which copies no rows. The step may have to wait for sessions
    that read the table. It waits in short attempts, so that later sessions hardly wait behind it.
    """
    attached = [partition.name for partition in partitions if partition.state is DayState.ATTACHED]

    def detach_and_distribute() -> None:
        with connection.transaction():
            connection.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
            for name in attached:
                detach = sql.SQL("ALTER TABLE {} DETACH PARTITION {}")
                connection.execute(detach.format(sql.Identifier(table), sql.Identifier(name)))
            _create_distributed(connection, table)

    retry_lock(detach_and_distribute, WAIT_S)


def distribute_with_rows(connection: Connection, table: str) -> None:
    """Distribute a table that is not partitioned, with its rows."""
    with connection.transaction():
        _create_distributed(connection, table)
        distribution.free_coordinator(connection, sql.Identifier(table))


def share_table(connection: Connection, table: str) -> None:
    """Let sessions on each node of the Citus cluster use a table that is not distributed.

    A table in COPIED becomes a reference table: Citus copies it to each node. Any table that is not
    in COPIED stays on the coordinator, and is added to the metadata of Citus.
    """
    with connection.transaction():
        if table in COPIED:
            connection.execute("SELECT create_reference_table(%s)", [table])
            return
        row = connection.execute(_SELECT_LAST_ID, [table]).fetchone()
        connection.execute(
            "SELECT citus_add_local_table_to_metadata(%s, cascade_via_foreign_keys => true)"
            " WHERE NOT EXISTS (SELECT FROM pg_dist_partition WHERE logicalrelid = %s::regclass)",
            [table, table],
        )
        if row is not None and row[0] is not None:
            # Citus has created the table anew, so its ids would begin with 1 again.
            connection.execute(
                "SELECT setval(pg_get_serial_sequence(%s, 'id')::regclass, %s)", [table, row[0]]
            )


def run_steps(
    connection: Connection,
    plan: DistributionPlan,
    partitions: Iterable[Partition],
    shards: int | None,
    report: Callable[[str], None],
) -> None:
    """Do the work of a plan, step by step.

    Args:
        partitions: The partitions of the tables of versions.
        shards: The number of shards for each table. None: the default of the server.
        report: Called with a sentence after each step.

    Raises:
        psycopg.Error: A step failed. The steps before it stay done.
    """
    partition_list = list(partitions)
    if shards is not None:
        connection.execute("SELECT set_config('citus.shard_count', %s, false)", [str(shards)])
    for table in plan.partitioned_tables:
        distribute_partitioned_table(
            connection,
            table,
            [partition for partition in partition_list if partition.table == table],
        )
        report(f"{table}: distributed by {DISTRIBUTED_BY[table]}, its days are detached")
    distribution.forget_answer(connection)
    for table in plan.distributed_lookup_tables:
        distribute_with_rows(connection, table)
        report(f"{table}: distributed by {DISTRIBUTED_BY[table]}")
    for table in plan.shared_tables:
        share_table(connection, table)
        result = (
            "copied to each node"
            if table in COPIED
            else "on the coordinator, reachable from each node"
        )
        report(f"{table}: {result}")
    for number, partition in enumerate(plan.days, 1):
        day = get_day(partition)
        if day is not None:
            _drop_guard(connection, partition)
        if day is not None and days.create_partition(connection, partition.table, day, WAIT_S):
            report(f"{partition.name}: attached, day {number} of {len(plan.days)}")


def _drop_guard(connection: Connection, partition: Partition) -> None:
    """Drop the trigger of a packed day, because Citus does not distribute a table with triggers."""
    connection.execute(
        sql.SQL("DROP TRIGGER IF EXISTS annals_refuse_packed ON {}").format(
            sql.Identifier(partition.name)
        )
    )


def _create_distributed(connection: Connection, table: str) -> None:
    """Distribute a table, colocated with the tables that are already distributed."""
    row = connection.execute(
        "SELECT logicalrelid::text FROM pg_dist_partition JOIN pg_class c ON c.oid = logicalrelid"
        " WHERE partmethod = 'h' AND relname = ANY(%s) ORDER BY logicalrelid LIMIT 1",
        [list(DISTRIBUTED_BY)],
    ).fetchone()
    # By default, Citus would also colocate the table with tables that are not tables of Annals, if
    # they are distributed by a column of the same type.
    colocated_table = "none" if row is None else row[0]
    distribution.use_one_connection(connection)
    connection.execute(
        "SELECT create_distributed_table(%s, %s, colocate_with => %s)",
        [table, DISTRIBUTED_BY[table], colocated_table],
    )
