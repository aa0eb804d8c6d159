"""Business keys by which entities are found: taken out of a snapshot while it is being stored.

Which ones there are stands with each kind of entity (Entity.search). Pure; ingest calls it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import cache
from typing import NamedTuple, Protocol

import msgspec

from history.entities import BY_NAME, ENTITIES
from history.json_pointer import PointerLookup
from history.record import Record
from history.window import EPOCH, MICROSECONDS_PER_DAY

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


Values = list[object]  # of an entity's pointers, in their order; what is not there is UNSET
Seen = int  # a hash of an entity's kind, a UTC day and its values: memory for thousands is small
DayKey = tuple[FoundKey, int]  # a key and the day it was seen on, in days since the epoch


class Known(Protocol):
    """By id, what an entity showed last of all that was stored."""

    def get(self, id: str, /) -> Seen | None: ...


NOTHING: Known = {}


class NewKeys:
    """Collects the business keys of records, without those that search has for that day already.

    seen: by id, what an entity showed last of all that was added here.
    """

    def __init__(self, known: Known = NOTHING) -> None:
        self._known = known
        self._newest: dict[FoundKey, int] = {}
        self.seen: dict[str, Seen] = {}

    def add(self, record: Record) -> None:
        """Take the keys of one record. Text and whole numbers count; what is missing, empty, longer
        than SEARCH_VALUE_LENGTH or of another type is passed over."""
        values = _values(record)
        if not values:
            return
        id, day = record.id, record.updated_at // MICROSECONDS_PER_DAY
        # Of the text: numbers share hashes (-1 and -2 do), and an absent value is not the word.
        shown = hash((record.entity, day, repr(values)))
        if self.seen.get(id) == shown or self._known.get(id) == shown:
            return
        self.seen[id] = shown
        for key in _keys(record, values):
            if self._newest.get(key, day) <= day:
                self._newest[key] = day

    def rows(self) -> list[DayKey]:
        """Each key once, with its newest day, in the order in which to insert."""
        return sorted(self._newest.items())


def _values(record: Record) -> Values:
    lookup = _LOOKUPS[record.entity]
    if lookup is None or len(record.data) <= len(b"null"):
        return []
    try:
        return lookup(record.data)
    except UNREADABLE:
        return [_alone(pointer, record) for _, pointer in BY_NAME[record.entity].search]


def _alone(pointer: str, record: Record) -> object:
    """One value by itself, where another is not of the usual type."""
    try:
        (value,) = _lookup((pointer,))(record.data)
    except UNREADABLE:
        return None
    found: object = value
    return found


def _keys(record: Record, values: Values) -> Iterator[FoundKey]:
    product = record.product_instance_id or record.id
    for (name, _), value in zip(BY_NAME[record.entity].search, values, strict=True):
        if not isinstance(value, str | int) or isinstance(value, bool):
            continue
        text = str(value)
        if 0 < len(text) <= SEARCH_VALUE_LENGTH and "\0" not in text:
            yield FoundKey(text, name, record.entity, record.id, product)


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
def _lookup(pointers: tuple[str, ...]) -> PointerLookup:
    return PointerLookup([(pointer, str | int) for pointer in pointers])


_LOOKUPS = {
    entity.name: _lookup(tuple(pointer for _, pointer in entity.search)) if entity.search else None
    for entity in ENTITIES
}
