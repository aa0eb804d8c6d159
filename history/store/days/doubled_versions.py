"""Finds versions that a packed day has twice: in a block, and in another row or block.

Since release 0.2 a packed day refuses a row with such a version
(history.store.days.table_swap.guard_table). Days that an earlier release packed may have such
versions; `partitions repair` removes them.
"""

from datetime import datetime
from typing import Final, LiteralString, NamedTuple

from psycopg import sql

from history.kinds.entities import EntityKind
from history.store.blocks import queries
from history.store.days.canonical import Connection


class DoubledKey(NamedTuple):
    """The key of a version that is stored more than once."""

    id: str
    version: int
    updated_at: datetime


_FIND: Final[LiteralString] = """
SELECT id, version, updated_at FROM {versions} AS version_of_day WHERE position > 0
GROUP BY id, version, updated_at HAVING count(*) > 1 ORDER BY id, version, updated_at LIMIT {most}
"""


def find_doubled_versions(
    connection: Connection, entity: EntityKind, table: sql.Identifier, limit: int | None = None
) -> list[DoubledKey]:
    """Return the versions that the table of a day has more than once, in the order of their keys.

    Args:
        limit: Return at most this many. None: all.
    """
    query = sql.SQL(_FIND).format(
        versions=sql.SQL(queries.build_versions_query(entity, table.as_string(connection))),
        most=sql.Literal(limit),
    )
    return [DoubledKey(*row) for row in connection.execute(query)]
