"""Tells whether the tables of versions are distributed over a Citus cluster.

See docs/citus.md and docs/decisions/0028-cluster.md.
"""

from collections.abc import Mapping
from typing import Any, Final, LiteralString, NamedTuple

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from history.common.explained_errors import ExplainedError
from history.kinds.entities import ENTITIES

Connection = psycopg.Connection[Any]

APPLICATION: Final = "product_instance_id"
# Each distributed table, and its shard key.
DISTRIBUTED_BY: Final[Mapping[str, str]] = {
    **{entity.table: "id" for entity in ENTITIES},
    "gap_document": "id",
    "gap_pending": "id",
    "search_key": "value",
}
# Each node has a copy of these tables, because queries for versions join them.
COPIED: Final = frozenset({"history_person"})

_HAS_CITUS: Final[LiteralString] = (
    "SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')"
)
_DISTRIBUTED: Final[LiteralString] = """
SELECT EXISTS (SELECT FROM pg_dist_partition JOIN pg_class ON pg_class.oid = logicalrelid
    WHERE partmethod = 'h' AND relname = ANY(%s) AND relnamespace = 'public'::regnamespace)
"""

_ASK_NODES: Final[LiteralString] = """
SELECT nodename || ':' || nodeport, groupid <> 0, success, result
FROM run_command_on_all_nodes(%s, give_warning_for_connection_errors => false)
JOIN pg_dist_node USING (nodeid) ORDER BY nodeid
"""
_ON_WORKER: Final[LiteralString] = "SELECT groupid <> 0 FROM pg_dist_local_group"

# By host, port and name of the database: whether its tables are distributed. None: it has the
# extension, but its tables were not distributed when this process asked.
_answers_by_database: dict[tuple[object, ...], bool | None] = {}


class NodeAnswer(NamedTuple):
    """The result of a query that a node of a cluster ran. See `ask_nodes`."""

    node: str  # host and port
    worker: bool  # False: the coordinator
    success: bool  # whether the query succeeded
    result: str  # the value as text, or the reason why the query failed


def ask_nodes(connection: Connection, question: str) -> list[NodeAnswer]:
    """Send a query for one value to each node, and return the answers.

    Returns no answers if the tables are not distributed.

    Raises:
        psycopg.Error: A node does not answer.
    """
    if not is_distributed(connection):
        return []
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        return [NodeAnswer(*row) for row in cursor.execute(_ASK_NODES, [question])]


def is_distributed(connection: Connection) -> bool:
    """Return whether the tables of versions of this database are distributed.

    The answer of a database is cached.

    Raises:
        psycopg.Error: The database does not answer.
    """
    database = _identify_database(connection)
    if database not in _answers_by_database:
        tables = [entity.table for entity in ENTITIES]
        answer = has_citus(connection) and (_is_true(connection, _DISTRIBUTED, tables) or None)
        _answers_by_database[database] = answer
    return bool(_answers_by_database[database])


def is_distributed_table(connection: Connection, table: str) -> bool:
    """Return whether the rows of a table are on several nodes."""
    return table in DISTRIBUTED_BY and is_distributed(connection)


def forget_plain_answer(connection: Connection) -> None:
    """Remove "not distributed" from the cached answers, so that `is_distributed` asks again.

    Call it when a process opens a connection: the tables may have been distributed meanwhile.
    """
    if not _answers_by_database.get(_identify_database(connection), True):
        forget_answer(connection)


def has_citus(connection: Connection) -> bool:
    """Return whether the database has the extension Citus.

    Raises:
        psycopg.Error: The database does not answer.
    """
    return _is_true(connection, _HAS_CITUS)


def is_on_worker(connection: Connection) -> bool:
    """Return whether the server is a worker of a cluster.

    Raises:
        psycopg.Error: The database does not answer.
    """
    return has_citus(connection) and _is_true(connection, _ON_WORKER)


class WorkerAddressError(ExplainedError, RuntimeError):
    """Raised if DATABASE_URL is the address of a worker of a Citus cluster.

    Only the consumer can use the address of a worker.
    """


def refuse_worker(connection: Connection) -> None:
    """Check that the server is not a worker of a cluster.

    Raises:
        WorkerAddressError: The server is a worker.
        psycopg.Error: The database does not answer.
    """
    if is_on_worker(connection):
        raise WorkerAddressError(
            "DATABASE_URL names a worker of a Citus cluster: only `consume` works there. Give the "
            "address of the coordinator (docs/citus.md)"
        )


def forget_answer(connection: Connection) -> None:
    """Remove the cached answer of `is_distributed` for this database."""
    _answers_by_database.pop(_identify_database(connection), None)


def use_one_connection(connection: Connection) -> None:
    """Use one connection to each node for all shards of a table until the transaction ends.

    A server without Citus accepts the setting, too: it accepts any name with a dot.
    """
    connection.execute("SET LOCAL citus.multi_shard_modify_mode TO sequential")


def free_coordinator(connection: Connection, table: sql.Identifier) -> None:
    """Free the disk space that a distributed table still has on the coordinator.

    A table that had rows before it was distributed keeps a copy of them on the coordinator. Does
    nothing if the tables are not distributed.
    """
    if not is_distributed(connection):
        return
    name = table.as_string(connection)
    connection.execute(
        "SELECT truncate_local_data_after_distributing_table(%s::regclass)"
        " WHERE pg_relation_size(%s::regclass) > 0 AND EXISTS (SELECT FROM pg_dist_partition"
        " WHERE logicalrelid = %s::regclass AND partmethod = 'h')",
        [name, name, name],
    )


def _identify_database(connection: Connection) -> tuple[object, ...]:
    info = connection.info
    return info.host, info.port, info.dbname


def _is_true(connection: Connection, question: LiteralString, *values: list[str]) -> bool:
    """Return the one boolean that a query selects, whatever the connection's row factory is."""
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        (answer,) = cursor.execute(question, values or None).fetchone() or (False,)
    return bool(answer)
