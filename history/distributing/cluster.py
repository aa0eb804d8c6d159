"""What must be there before an installation is distributed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, LiteralString

from history import distribution
from history.days import Connection, State
from history.entities import ENTITIES
from history.failure.complaints import Complaint
from history.partitions.catalog import Partition

_NODES: Final[LiteralString] = """
SELECT EXISTS (SELECT FROM pg_dist_node WHERE groupid = 0),
    (SELECT count(*) FROM pg_dist_node WHERE noderole = 'primary' AND shouldhaveshards),
    (SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = to_regclass(%s))
"""
_AWAY: Final[LiteralString] = """
SELECT nodename || ':' || nodeport, split_part(result, E'\\n', 1)
FROM run_command_on_workers('SELECT 1') WHERE NOT success ORDER BY 1 LIMIT 1
"""
_CONSUMERS: Final[LiteralString] = """
SELECT pid, usename FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'annals-consume%' LIMIT 1
"""


# Each shard of a node has a connection of its own while rows are added to it. The owner needs some
# more for other commands.
_CONNECTIONS: Final[LiteralString] = """
SELECT rolname, rolconnlimit, (SELECT ceil(%s::numeric / count(*))::int FROM pg_dist_node
    WHERE noderole = 'primary' AND shouldhaveshards)
FROM pg_roles WHERE rolname = current_user AND NOT rolsuper AND rolconnlimit >= 0
"""
OTHER_COMMANDS: Final = 7


class NotDistributableError(Complaint, RuntimeError):
    """Why this database cannot be distributed, and what to do."""


def check(connection: Connection, partitions: Iterable[Partition]) -> None:
    """Raise NotDistributableError if something is missing, or in the way. partitions: of the tables
    of versions."""
    if not distribution.has_citus(connection):
        raise NotDistributableError(
            "this database has no Citus: run CREATE EXTENSION citus on the coordinator and on each "
            "worker, then citus_add_node(). See docs/citus.md"
        )
    if distribution.on_worker(connection):
        raise NotDistributableError(
            "DATABASE_URL names a worker: it must name the coordinator of the cluster"
        )
    row = connection.execute(_NODES, [ENTITIES[0].table]).fetchone()
    known, workers, owner = row or (False, 0, None)
    if not known:
        raise NotDistributableError(
            "the coordinator does not know its own address: run "
            "SELECT citus_set_coordinator_host('HOST', PORT)"
        )
    if not workers:
        raise NotDistributableError(
            "the cluster has no worker: run SELECT citus_add_node('HOST', PORT) for each"
        )
    if (away := connection.execute(_AWAY).fetchone()) is not None:
        node, said = away
        raise NotDistributableError(f"the worker {node} does not answer this login: {said}")
    if not owner:
        raise NotDistributableError("only the owner of the tables can distribute them")
    _check_partitions(partitions)


def refuse_consumers(connection: Connection) -> None:
    """Raise NotDistributableError if a consumer is connected: it would not find the days, and would
    write no homes of children until it is started again."""
    row = connection.execute(_CONSUMERS).fetchone()
    if row is not None:
        raise NotDistributableError(
            f"a consumer is connected (session {row[0]} of the login {row[1]!r}): stop all "
            "consumers, and start them again afterwards"
        )


def check_connections(connection: Connection, shards: int) -> None:
    """Raise NotDistributableError if the login may not have as many connections on each node as
    shards of a table may be there. shards: of a table, on all nodes."""
    row = connection.execute(_CONNECTIONS, [shards]).fetchone()
    if row is None:
        return
    login, limit, of_node = row
    if limit < of_node + OTHER_COMMANDS:
        raise NotDistributableError(
            f"the login {login!r} may have {limit} connections to each node, and the {shards} "
            f"shards of a table need {of_node} on each: run "
            f"ALTER ROLE {login} CONNECTION LIMIT {of_node + OTHER_COMMANDS}"
        )


def _check_partitions(partitions: Iterable[Partition]) -> None:
    for part in partitions:
        if part.day is None and not part.restored:
            raise NotDistributableError(
                f"{part.name} is no partition of a UTC day that Annals made: detach it, or let "
                "it be one"
            )
        if part.state is State.PENDING:
            raise NotDistributableError(
                f"the detach of {part.name} was interrupted: run `annals partitions maintain`"
            )
