"""Business keys by which entities are found: taken out of a snapshot while it is being stored.

Which ones there are stands with each kind of entity (Entity.search). Pure; ingest calls it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from datetime import timedelta
from functools import cache
from typing import NamedTuple

import msgspec

from history.entities import BY_NAME, Entity
from history.pick import Picker
from history.record import Record
from history.window import EPOCH, MICROSECONDS_PER_DAY

SEARCH_VALUE_LENGTH = 100
POINTERS = {name: tuple(pointer for _, pointer in each.search) for name, each in BY_NAME.items()}
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
    pointers = POINTERS[record.entity]
    if not pointers or len(record.data) <= len(b"null"):
        return []
    try:
        values = _picker(pointers)(record.data)
    except UNREADABLE:
        values = [_alone(pointer, record) for pointer in pointers]
    return _keys(BY_NAME[record.entity], record, values)


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
        if not isinstance(value, str | int) or isinstance(value, bool):
            continue
        text = str(value)
        if 0 < len(text) <= SEARCH_VALUE_LENGTH and "\0" not in text:
            found.append(FoundKey(text, name, entity.name, record.id, product))
    return found


DayKey = tuple[FoundKey, int]


def upsert_rows(
    found: Iterable[tuple[list[FoundKey], int]], known: Container[DayKey] = ()
) -> list[DayKey]:
    """The distinct keys of a batch, each with its newest UTC day (days since the epoch), without
    those that are known, in the order to insert.

    found: the keys of each record with its updated_at.
    """
    newest: dict[FoundKey, int] = {}
    for keys, updated_at in found:
        day = updated_at // MICROSECONDS_PER_DAY
        for key in keys:
            if newest.get(key, day) <= day:
                newest[key] = day
    return sorted(each for each in newest.items() if each not in known)


def upsert_value(rows: Iterable[DayKey]) -> bytes:
    """The rows as the one parameter of UPSERT: cheaper to make than an array for each column."""
    return msgspec.json.encode([(*key, (EPOCH + timedelta(day)).isoformat()) for key, day in rows])


# One row for each key; `day` moves forward at most once a day, so that a busy entity costs little.
UPSERT = """
    INSERT INTO search_key (value, name, entity, id, product_instance_id, day)
    SELECT r->>0, r->>1, r->>2, r->>3, r->>4, (r->>5)::date
    FROM json_array_elements(%s::json) WITH ORDINALITY AS u(r, n) ORDER BY n
    ON CONFLICT (value, name, entity, id) DO UPDATE
    SET day = excluded.day, product_instance_id = excluded.product_instance_id
    WHERE search_key.day < excluded.day
"""
EXPIRE = "DELETE FROM search_key WHERE day < %s"


@cache
def _picker(pointers: tuple[str, ...]) -> Picker:
    return Picker([(pointer, str | int) for pointer in pointers])
