"""What the SQL on the *_aud tables gives, and how it is run.

Every statement is prepared and keeps one shape whatever is filtered, because planning a query
over a hundred partitions costs more than running it. A bound that is not given is infinite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from psycopg.types.numeric import Int4

from history import prepared
from history.entities import Entity
from history.record import MAX_VERSION
from history.timeline import memory
from history.timeline.bounded import around
from history.timeline.cursor import cursor, cursors
from history.timeline.query import Filters
from history.timeline.recovered import Recovered


class Key(NamedTuple):
    """Identifies a version of one entity; ordered by version number. Two keys with one number
    exist only where a producer gave the number twice."""

    version: int
    updated_at: datetime


# Before and after every version. Real moments and not infinity: a parameter of one type all the
# time means one prepared statement.
FIRST = Key(-1, datetime.min.replace(tzinfo=UTC))
LAST = Key(MAX_VERSION, datetime.max.replace(tzinfo=UTC))


class VersionRow(NamedTuple):
    """One version. `data` is the snapshot as JSON text in UTF-8. old: of the old service.
    recovered: None for one that came from Kafka."""

    version: int
    updated_at: datetime
    type: int
    client_id: str
    author: str | None
    product_instance_id: str | None
    data: bytes
    id: str
    old: bool = False
    recovered: Recovered | None = None

    @property
    def key(self) -> Key:
        return Key(self.version, self.updated_at)


# Identifies a version of any entity of one kind.
Place: TypeAlias = tuple[str, Key]
# Reads as first_bodies does.
FirstBodies: TypeAlias = Callable[
    [Entity, Sequence[Place]], tuple[dict[Place, VersionRow], Sequence[Place]]
]


class Read(NamedTuple):
    """The rows that a statement found. unread: the places of those whose documents are too large to
    be read together with these."""

    rows: list[VersionRow]
    unread: list[Place]


# Documents that one statement brings; the first one may be larger.
READ_BYTES = 4 * 1024 * 1024


def fetch(statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
    """All rows of a prepared statement."""
    with cursor() as opened:
        return prepared.run(opened, statement, values)


def read(entity: Entity, statement: str, values: Sequence[object]) -> Read:
    """The rows of a statement, from the first one on, of which the documents may be read now."""
    found = fetch(*bounded(entity, statement, values))
    rows = [version_row(row) for row in found]
    read = [row for row in rows if row.data is not None]
    unread = [(row.id, row.key) for row in rows if row.data is None]
    return Read(read, unread)


def bounded(
    entity: Entity, statement: str, values: Sequence[object]
) -> tuple[str, Sequence[object]]:
    """A statement that gives versions, and its values, with the limit of documents around it."""
    return around(statement, entity.table), [Int4(READ_BYTES), Int4(READ_BYTES), *values]


def together(
    asked: Sequence[tuple[str, Sequence[object]]], *, one_shard: bool
) -> list[list[tuple[Any, ...]]]:
    """The rows of each of these prepared statements, in one round trip. one_shard: they have the
    same columns, and go to the same shard, which is one statement for Citus."""
    if not one_shard:
        with cursors(len(asked)) as opened:
            return prepared.run_together(opened, asked)
    text = " UNION ALL ".join(
        f"SELECT {number} AS part, its.* FROM ({each}) AS its"  # noqa: S608 - a number
        for number, (each, _) in enumerate(asked)
    )
    found: list[list[tuple[Any, ...]]] = [[] for _ in asked]
    for part, *row in fetch(text, [value for _, its in asked for value in its]):
        found[part].append(tuple(row))
    return found


def version_row(found: tuple[Any, ...]) -> VersionRow:
    """A row of a statement with the columns of bounded.around."""
    *row, source, at, name, kind, service_name, service_kind = found
    memory.note(row[3], service_name, service_kind)
    memory.note(row[4], name, kind)
    return VersionRow._make([*row, False, None if source is None else Recovered(source, at)])


@cache
def sql(text: str, entity: Entity, **parts: str) -> str:
    """A statement with the entity's table and columns and the given words put in."""
    product = "NULL::varchar" if entity.parent is None else "product_instance_id"
    columns = f"version, updated_at, type, client_id, author, {product} AS product, data, id"
    return text.format(table=entity.table, columns=columns, product=product, **parts)


def places(wanted: Sequence[Place]) -> list[object]:
    """Ids, moments and numbers of these versions, as three arrays."""
    return [
        [id for id, _ in wanted],
        [key.updated_at for _, key in wanted],
        [Int4(key.version) for _, key in wanted],
    ]


# In every statement: otherwise each combination of filters is one more prepared statement.
FILTERS = "AND (%s OR author = %s) AND (%s OR client_id = %s) AND (%s OR type = %s)"


def conditions(filters: Filters) -> list[object]:
    """The values for FILTERS."""
    author, client_id, type = filters.author, filters.client_id, filters.type
    return [
        *(author is None, author or ""),
        *(client_id is None, client_id or ""),
        *(type is None, Int4(type or 0)),
    ]
