"""Takes the business keys, by which entities are found, out of a snapshot while it is stored.

Each kind of entity declares its keys (Entity.search). Pure; ingest calls it.
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
# Includes text that is not Unicode: PostgreSQL will refuse such a snapshot.
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class FoundKey(NamedTuple):
    """A row of the search_key table without its day. Sortable: writers that insert in order do not
    deadlock."""

    value: str
    name: str
    entity: str
    id: str
    product_instance_id: str


Values = list[object]  # the values at an entity's pointers, in their order; UNSET if absent
# A hash of an entity's kind, a UTC day and its values. Small, so that thousands fit in memory.
Fingerprint = int
DayKey = tuple[FoundKey, int]  # a key and the day it was seen on, in days since the epoch


class KnownFingerprints(Protocol):
    """By id, the fingerprint of the business keys that were stored last."""

    def get(self, id: str, /) -> Fingerprint | None: ...


NONE_KNOWN: KnownFingerprints = {}


class NewKeys:
    """Collects the business keys of records, except those stored for that day already.

    fingerprints: by id, the fingerprint of the keys that were added last.
    """

    def __init__(self, known: KnownFingerprints = NONE_KNOWN) -> None:
        self._known = known
        self._newest: dict[FoundKey, int] = {}
        self.fingerprints: dict[str, Fingerprint] = {}

    def add(self, record: Record) -> None:
        """Add the keys of one record: text and whole numbers. One that is missing, empty, longer
        than SEARCH_VALUE_LENGTH or of another type is ignored."""
        values = _values(record)
        if not values:
            return
        id, day = record.id, record.updated_at // MICROSECONDS_PER_DAY
        # Of the text: -1 and -2 have the same hash, and an absent value must differ from its name.
        fingerprint = hash((record.entity, day, repr(values)))
        if self.fingerprints.get(id) == fingerprint or self._known.get(id) == fingerprint:
            return
        self.fingerprints[id] = fingerprint
        for key in _keys(record, values):
            if self._newest.get(key, day) <= day:
                self._newest[key] = day

    def rows(self) -> list[DayKey]:
        """Each key once, with its newest day, in the order of insertion."""
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
    """One value alone, used when another one is not of the expected type."""
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
    """The parameters of UPSERT, one JSON array per column: cheaper to build and to parse than SQL
    arrays or one parameter per value."""
    columns = [*zip(*(key for key, _ in rows), strict=True)]
    dates = {day: (EPOCH + timedelta(day)).isoformat() for day in {day for _, day in rows}}
    columns.append(tuple(dates[day] for _, day in rows))
    return tuple(msgspec.json.encode(column).decode() for column in columns)


_COLUMN = "json_array_elements_text(%s::json)"
# One row per key. `day` changes at most once a day, so that a busy entity costs little.
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
