"""Business keys by which entities are found: taken out of a snapshot while it is being stored.

Which ones there are stands with each kind of entity (Entity.search). Pure; ingest calls it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

import msgspec

from history.entities import BY_NAME, Entity
from history.pick import Picker
from history.record import Record
from history.window import day_of

SEARCH_VALUE_LENGTH = 100
# Text that is no Unicode among them: PostgreSQL will refuse such a snapshot.
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class FoundKey(NamedTuple):
    """A row of the search_key table but for its day. Sortable: writers that insert in order
    do not deadlock."""

    value: str
    name: str
    entity: str
    id: str
    product_instance_id: str


def found_keys(record: Record) -> list[FoundKey]:
    """The business keys in a record's snapshot. Text and whole numbers count; what is missing,
    empty, longer than SEARCH_VALUE_LENGTH or of another type is passed over."""
    entity = BY_NAME[record.entity]
    if not entity.search or record.data[:1] != b"{":
        return []
    pointers = tuple(pointer for _, pointer in entity.search)
    try:
        values = _picker(pointers)(record.data)
    except UNREADABLE:
        values = [_alone(pointer, record) for pointer in pointers]
    return _keys(entity, record, values)


def _alone(pointer: str, record: Record) -> object:
    """One key by itself, where another is not of the usual type."""
    try:
        (value,) = _picker((pointer,))(record.data)
    except UNREADABLE:
        return None
    found: object = value
    return found


def _keys(entity: Entity, record: Record, values: list[object]) -> list[FoundKey]:
    product = record.product_instance_id or record.id
    found = []
    for (name, _), value in zip(entity.search, values, strict=True):
        whole = isinstance(value, int) and not isinstance(value, bool)
        text = str(value) if whole or isinstance(value, str) else ""
        if 0 < len(text) <= SEARCH_VALUE_LENGTH and "\0" not in text:
            found.append(FoundKey(text, name, entity.name, record.id, product))
    return found


def upsert_rows(found: Iterable[tuple[list[FoundKey], int]]) -> list[tuple[FoundKey, str]]:
    """The distinct keys of a batch, each with its newest UTC day (ISO), in the order to insert.

    found: the keys of each record with its updated_at.
    """
    newest: dict[FoundKey, int] = {}
    for keys, updated_at in found:
        for key in keys:
            newest[key] = max(updated_at, newest.get(key, updated_at))
    return [(key, day_of(moment).isoformat()) for key, moment in sorted(newest.items())]


# One row for each key; `day` moves forward at most once a day, so that a busy entity costs little.
UPSERT = """
    INSERT INTO search_key (value, name, entity, id, product_instance_id, day)
    SELECT * FROM unnest(%s::varchar[], %s::varchar[], %s::varchar[], %s::varchar[], %s::varchar[],
                         %s::date[])
    ON CONFLICT (value, name, entity, id) DO UPDATE
    SET day = excluded.day, product_instance_id = excluded.product_instance_id
    WHERE search_key.day < excluded.day
"""
EXPIRE = "DELETE FROM search_key WHERE day < %s"


@cache
def _picker(pointers: tuple[str, ...]) -> Picker:
    return Picker([(pointer, str | int) for pointer in pointers])
