"""A new table of a day on a Citus cluster: made beside its parent, filled, proved and swapped in.

Citus allows no triggers on distributed tables, so nothing notes what changes while the new table is
filled. Instead the keys of the old table are compared with those before it was read, while nobody
can write: a day into which a row came meanwhile stays as it is, and the next run tries again.
A row whose content was changed by SQL meanwhile, under the same key, is not noticed.
"""

from datetime import date
from typing import Any, Final, LiteralString, NamedTuple

import psycopg
from psycopg import sql

from history.store import distribution
from history.store.days import days
from history.store.days.days import DayTable
from history.store.distribution.disk_use import DiskUse, measure_disk_use

Connection = psycopg.Connection[Any]

# The same for the same rows, in whatever order the nodes have them. Plain rows are read in the
# primary key alone.
_KEYS: Final[LiteralString] = """
SELECT count(*), coalesce(sum(hashtextextended(concat_ws(' ', id, version,
    (extract(epoch FROM updated_at) * 1000000)::bigint, {block}), 0)), 0)::text FROM {table}
"""


class RowsChangedError(Exception):
    """Raised under the lock of a swap: the old table has other rows than before it was read."""


class KeyDigest(NamedTuple):
    """The number of rows of a table, and a digest of their keys."""

    rows: int
    digest: str


def create_new_table(connection: Connection, place: DayTable, day: date) -> None:
    """Create and distribute the new table of a day, in the caller's transaction.

    Its shards are where those of the parent are, so ATTACH moves no row later.
    """
    distribution.use_one_connection(connection)
    # Otherwise Citus moves no more than a gigabyte.
    connection.execute("SET LOCAL citus.max_intermediate_result_size TO -1")
    new = place._replace(child=place.new)
    days.create_detached_table(connection, new, day, place.comment or days.MARK)
    connection.execute(
        "SELECT create_distributed_table(%s, 'id', colocate_with => %s)",
        [place.new.as_string(connection), place.parent.as_string(connection)],
    )


def digest_keys(connection: Connection, table: sql.Identifier, *, packed: bool) -> KeyDigest:
    """Return the digest of a table before it is read, or under the lock of the swap."""
    block = sql.SQL("octet_length(packed)" if packed else "NULL::text")
    row = connection.execute(sql.SQL(_KEYS).format(table=table, block=block)).fetchone()
    assert row is not None  # an aggregate is one row  # noqa: S101
    return KeyDigest(int(row[0]), str(row[1]))


def measure_table(connection: Connection, table: sql.Identifier) -> DiskUse:
    """Return what a day's table holds on all nodes. Not in a transaction that changed it."""
    name = str(table._obj[-1])
    return measure_disk_use(connection, [name]).get(name, DiskUse())


def find_fullest_node(connection: Connection) -> int:
    """Return the bytes of this database on the node that has most."""
    answers = distribution.ask_nodes(connection, "SELECT pg_database_size(current_database())")
    return max((int(answer.result) for answer in answers if answer.success), default=0)
