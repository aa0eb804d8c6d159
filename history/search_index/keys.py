"""Takes the business keys (Entity.search) out of a snapshot while it is stored. Pure."""

import unicodedata
from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple, Protocol

import msgspec

from history.daily.window import MICROSECONDS_PER_DAY
from history.documents.json_pointer import PointerLookup
from history.documents.jsonb import QUOTE, from_store
from history.entities import BY_NAME, ENTITIES, SEARCH_VALUE_LENGTH
from history.record import Record

# Includes text that is not Unicode: PostgreSQL will refuse such a snapshot.
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class FoundKey(NamedTuple):
    """The primary key of the search_key table. Writers insert in its order."""

    value: str
    name: str
    entity: str
    id: str


class KeyRow(NamedTuple):
    """A row of the search_key table. day: of the latest version, in days since the epoch."""

    key: FoundKey
    day: int


Found = object  # what a text has at an entity's pointers, from its lookup's decode()
Values = list[object]  # the values at an entity's pointers, in their order; UNSET if absent
# A hash of an entity's kind, UTC day and values. Small: thousands fit in memory.
Fingerprint = int


class KnownFingerprints(Protocol):
    """By id, the fingerprint of the business keys that were stored last."""

    def get(self, id: str, /) -> Fingerprint | None: ...


# Letters with marks as one character each, as keyboards write them.
STORED_FORM: Final = "NFC"
NONE_KNOWN: KnownFingerprints = {}
_encode = msgspec.json.Encoder().encode


class NewKeys:
    """Collects the business keys of records, except those stored for that day already.
    fingerprints: by id, the fingerprint of the keys that were added last."""

    def __init__(self, known: KnownFingerprints = NONE_KNOWN) -> None:
        self._known = known
        self._latest: dict[FoundKey, int] = {}
        self.fingerprints: dict[str, Fingerprint] = {}

    def add(self, record: Record, found: Found | None = None) -> None:
        """Add the keys of one record: text and whole numbers. One that is missing, empty, longer
        than SEARCH_VALUE_LENGTH or of another type is ignored. found: what the record's data has at
        the pointers, if it was looked up before."""
        lookup = LOOKUPS[record.entity]
        if lookup is None:
            return
        values = None
        if found is None:
            if len(record.data) <= len(b"null"):
                return
            try:
                found = lookup.decode(record.data)
            except UNREADABLE:
                values = _one_by_one(record, lookup)
        text = _encode(found) if values is None else repr(values)
        id, day = record.id, record.updated_at // MICROSECONDS_PER_DAY
        # Of the text: -1 and -2 have the same hash, and an absent value must differ from its name.
        fingerprint = hash((record.entity, day, text))
        if self.fingerprints.get(id) == fingerprint or self._known.get(id) == fingerprint:
            return
        self.fingerprints[id] = fingerprint
        for key in _keys(record, lookup.values(found) if values is None else values):
            self._latest[key] = max(day, self._latest.get(key, day))

    def rows(self) -> list[KeyRow]:
        """Each key once, with its latest day, in the order of insertion."""
        return [KeyRow(key, day) for key, day in sorted(self._latest.items())]


def _one_by_one(record: Record, lookup: PointerLookup) -> Values:
    """The values of a snapshot stored as a string, or with one of another type."""
    data = record.data if record.data[0] != QUOTE else from_store(bytes(record.data))
    try:
        return lookup(data)
    except UNREADABLE:
        return [_alone(pointer, data) for _, pointer in BY_NAME[record.entity].search]


def _alone(pointer: str, data: bytes | memoryview) -> object:
    """One value alone, used when another one is not of the expected type."""
    try:
        (value,) = _lookup((pointer,))(data)
    except UNREADABLE:
        return None
    found: object = value
    return found


def _keys(record: Record, values: Values) -> Iterator[FoundKey]:
    for (name, _), value in zip(BY_NAME[record.entity].search, values, strict=True):
        if not isinstance(value, str | int) or isinstance(value, bool):
            continue
        text = unicodedata.normalize(STORED_FORM, str(value))
        if 0 < len(text) <= SEARCH_VALUE_LENGTH and "\0" not in text:
            yield FoundKey(text, name, record.entity, record.id)


def stored_values(text: str) -> list[str]:
    """Return the values of business keys that are this text: the text in the stored form first.

    The others were stored by releases that kept values as they came.
    """
    stored = unicodedata.normalize(STORED_FORM, text)
    decomposed = unicodedata.normalize("NFD", text)
    return list(dict.fromkeys([stored, decomposed, text]))


@cache
def _lookup(pointers: tuple[str, ...]) -> PointerLookup:
    return PointerLookup([(pointer, str | int) for pointer in pointers])


# By an entity's name; None if it declares no keys.
LOOKUPS = {
    entity.name: _lookup(tuple(pointer for _, pointer in entity.search)) if entity.search else None
    for entity in ENTITIES
}
