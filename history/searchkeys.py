"""Business keys by which entities are found: taken out of a snapshot while it is being stored.

Which ones there are stands with each kind of entity (Entity.search). Pure; ingest calls it.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
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


DayKey = tuple[FoundKey, int]  # a key and the UTC day it was seen on, in days since the epoch


class NewKeys:
    """Collects what search does not know yet out of records. known: what it does know."""

    def __init__(self, known: Container[DayKey] = ()) -> None:
        self._known = known
        self._newest: dict[FoundKey, int] = {}

    def add(self, record: Record) -> None:
        """Take the keys of one record."""
        day = record.updated_at // MICROSECONDS_PER_DAY
        for key in found_keys(record):
            if (key, day) not in self._known and self._newest.get(key, day) <= day:
                self._newest[key] = day

    def rows(self) -> list[DayKey]:
        """Each key once, with its newest day, in the order in which to insert."""
        return sorted(self._newest.items())


def upsert_values(rows: Sequence[DayKey]) -> tuple[str, ...]:
    """The parameters of UPSERT, one for each column: cheaper to make and to read than arrays or
    one value for each row."""
    columns = [*zip(*(key for key, _ in rows), strict=True)]
    dates = {day: (EPOCH + timedelta(day)).isoformat() for day in {day for _, day in rows}}
    columns.append(tuple(dates[day] for _, day in rows))
    return tuple(msgspec.json.encode(column).decode() for column in columns)


_COLUMN = "json_array_elements_text(%s::json)"
# One row for each key; `day` moves forward at most once a day, so that a busy entity costs little.
UPSERT = f"""
    INSERT INTO search_key (value, name, entity, id, product_instance_id, day)
    SELECT value, name, entity, id, product, day::date
    FROM ROWS FROM ({", ".join([_COLUMN] * 6)}) AS u(value, name, entity, id, product, day)
    ON CONFLICT (value, name, entity, id) DO UPDATE
    SET day = excluded.day, product_instance_id = excluded.product_instance_id
    WHERE search_key.day < excluded.day
"""  # noqa: S608 - constants
EXPIRE = "DELETE FROM search_key WHERE day < %s"


@cache
def _picker(pointers: tuple[str, ...]) -> Picker:
    return Picker([(pointer, str | int) for pointer in pointers])
