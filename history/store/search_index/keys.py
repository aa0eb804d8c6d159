"""Finds the business keys in snapshots that are being stored. Has no side effects."""

import unicodedata
from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple, Protocol

import msgspec

from history.documents.json_pointer import PointerLookup
from history.documents.jsonb import QUOTE, from_store
from history.documents.record import Record
from history.kinds.entities import BY_NAME, ENTITIES, SEARCH_VALUE_LENGTH
from history.store.days.window import MICROSECONDS_PER_DAY

# The errors of a snapshot that cannot be decoded. PostgreSQL will refuse one that is not Unicode.
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class SearchKeyId(NamedTuple):
    """The primary key of the search_key table. Writers insert rows in the order of this key."""

    value: str
    name: str
    entity: str
    id: str


class SearchKeyRow(NamedTuple):
    """A row of the search_key table."""

    key: SearchKeyId
    day: int  # the day of the latest version with the key, in days since the epoch


DecodedValues = object  # what PointerLookup.decode() returns for a snapshot
KeyValues = list[object]  # the values at the pointers of a kind, in their order; UNSET if absent
# A hash of a kind, a UTC day and the values of keys. Small: thousands fit in memory.
KeyFingerprint = int


class KnownFingerprints(Protocol):
    """A cache: by the id of a document, the fingerprint of the business keys stored last for it."""

    def get(self, id: str, /) -> KeyFingerprint | None: ...


# The Unicode form of stored values: a letter with an accent is one character, as keyboards make it.
STORED_FORM: Final = "NFC"
NONE_KNOWN: KnownFingerprints = {}
_encode = msgspec.json.Encoder().encode


class NewSearchKeys:
    """The business keys of some records, with the days of the records.

    Leaves out the keys of a record if search_key is known to have them for the day of the record.

    Args:
        known_fingerprints: The fingerprints of keys that search_key has. A fingerprint stands for
            all keys of a record and the day of the record.

    Attributes:
        fingerprints: By the id of a document, the fingerprint of the last added record of the
            document.
    """

    def __init__(self, known_fingerprints: KnownFingerprints = NONE_KNOWN) -> None:
        self._known = known_fingerprints
        self._latest: dict[SearchKeyId, int] = {}
        self.fingerprints: dict[str, KeyFingerprint] = {}

    def add_record(self, record: Record, decoded: DecodedValues | None = None) -> None:
        """Add the keys of one record: texts and whole numbers.

        A value is ignored if it is missing, empty, longer than SEARCH_VALUE_LENGTH, or of another
        type.

        Args:
            decoded: What PointerLookup.decode returned for the record's snapshot, if the caller has
                decoded it already.
        """
        lookup = LOOKUPS[record.entity]
        if lookup is None:
            return
        values = None
        if decoded is None:
            if len(record.data) <= len(b"null"):
                return
            try:
                decoded = lookup.decode(record.data)
            except UNREADABLE:
                values = _decode_one_by_one(record, lookup)
        text = _encode(decoded) if values is None else repr(values)
        id, day = record.id, record.updated_at // MICROSECONDS_PER_DAY
        # The text is hashed and not the values: in Python -1 and -2 have the same hash.
        fingerprint = hash((record.entity, day, text))
        if self.fingerprints.get(id) == fingerprint or self._known.get(id) == fingerprint:
            return
        self.fingerprints[id] = fingerprint
        for key in _generate_keys(
            record, lookup.collect_values(decoded) if values is None else values
        ):
            self._latest[key] = max(day, self._latest.get(key, day))

    def list_rows(self) -> list[SearchKeyRow]:
        """Return each key once, with its latest day, sorted by the primary key of search_key."""
        return [SearchKeyRow(key, day) for key, day in sorted(self._latest.items())]


def _decode_one_by_one(record: Record, lookup: PointerLookup) -> KeyValues:
    """Return the business keys of a snapshot that `lookup` cannot decode in one step.

    This is a snapshot that is stored as a JSON string, or with a value of an unexpected type.
    """
    data = record.data if record.data[0] != QUOTE else from_store(bytes(record.data))
    try:
        return lookup(data)
    except UNREADABLE:
        return [_decode_one(pointer, data) for _, pointer in BY_NAME[record.entity].search]


def _decode_one(pointer: str, data: bytes | memoryview) -> object:
    """Return the value at a pointer, or None if it does not have the expected type."""
    try:
        (value,) = _make_lookup((pointer,))(data)
    except UNREADABLE:
        return None
    result: object = value
    return result


def _generate_keys(record: Record, values: KeyValues) -> Iterator[SearchKeyId]:
    for (name, _), value in zip(BY_NAME[record.entity].search, values, strict=True):
        if not isinstance(value, str | int) or isinstance(value, bool):
            continue
        text = unicodedata.normalize(STORED_FORM, str(value))
        if 0 < len(text) <= SEARCH_VALUE_LENGTH and "\0" not in text:
            yield SearchKeyId(text, name, record.entity, record.id)


def list_stored_values(text: str) -> list[str]:
    """Return the Unicode forms in which the table `search_key` can have a text, normalized first.

    Earlier releases stored values without normalizing them.
    """
    stored = unicodedata.normalize(STORED_FORM, text)
    decomposed = unicodedata.normalize("NFD", text)
    return list(dict.fromkeys([stored, decomposed, text]))


@cache
def _make_lookup(pointers: tuple[str, ...]) -> PointerLookup:
    return PointerLookup([(pointer, str | int) for pointer in pointers])


# By the name of a kind, the lookup of its keys. None if the kind does not declare keys.
LOOKUPS = {
    entity.name: _make_lookup(tuple(pointer for _, pointer in entity.search))
    if entity.search
    else None
    for entity in ENTITIES
}
