"""Makes the contract's envelope of the values that a declared one has."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, get_type_hints

import msgspec
from msgspec import UNSET, Raw, UnsetType

from history.json_pointer import PointerLookup, segments
from history.kinds import Envelope as Declared
from ingest.source.envelope import Envelope, EnvelopeError, Name

_NULL: Final = b"null"
# Microseconds in a unit; of a nanosecond the other way round.
_UNITS: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - written without an offset, which is UTC
_FIELDS: Final = {each.encode_name: each.name for each in msgspec.structs.fields(Envelope)}
_TYPES: Final = get_type_hints(Envelope, include_extras=True)
_IDS: Final = ("id", "productInstanceId")
# A value as JSON, or as the text of a header.
Value = Raw | str


class Fields:
    """The fields of one kind's envelopes. pointers: by the contract's names."""

    def __init__(self, declared: Declared) -> None:
        self.pointers = dict(declared.places)
        self._types = dict(declared.types)
        self._unit = declared.time_unit
        self._client = declared.client

    def envelope(self, values: Mapping[str, Value], data: Raw | UnsetType) -> Envelope:
        """The envelope of these values, by the contract's names; null is none. Raises
        msgspec.ValidationError, msgspec.DecodeError, EnvelopeError."""
        found: dict[str, Any] = {"data": data, "type": None}
        for name, value in values.items():
            if name == "data" or (isinstance(value, Raw) and bytes(value) == _NULL):
                continue
            found[_FIELDS[name]] = self._value(name, value)
        if self._client is not None:
            found["client_id"] = self._client
        for name in ("id", "version", "updatedAt", "clientId"):
            if _FIELDS[name] not in found:
                pointer = self.pointers.get(name, name)
                raise msgspec.ValidationError(f"Object has nothing at `{pointer}`, the {name}")
        return Envelope(**found)

    def change(self, spelling: object) -> str:
        """CREATE, UPDATE or DELETE. Raises EnvelopeError."""
        found = None if isinstance(spelling, bool) else self._types.get(str(spelling))
        if found is None:
            words = ", ".join(self._types)
            raise EnvelopeError(
                "bad_type", f"the type of change is missing or another word; valid: {words}"
            )
        return found

    def _value(self, name: str, value: Value) -> Any:
        plain = msgspec.json.decode(value) if isinstance(value, Raw) else value
        if name == "type":
            return self.change(plain)
        if name == "updatedAt" and self._unit is not None:
            return self._moment(plain)
        if name in _IDS and isinstance(plain, int) and not isinstance(plain, bool):
            plain = str(plain)
        if name == "version" and isinstance(plain, str) and plain.isascii() and plain.isdigit():
            plain = int(_digits(plain, 11))
        try:
            return msgspec.convert(plain, _TYPES[_FIELDS[name]])
        except msgspec.ValidationError as error:
            place = ".".join(segments(self.pointers.get(name, f"/{name}")))
            raise msgspec.ValidationError(f"{error} - at `$.{place}`") from None

    def _moment(self, value: object) -> str:
        """An ISO 8601 text of a number since the epoch, truncated to microseconds."""
        if isinstance(value, str) and value.removeprefix("-").isdigit() and value.isascii():
            sign = "-" * value.startswith("-")
            value = int(sign + _digits(value.removeprefix("-"), 25))
        if not isinstance(value, int) or isinstance(value, bool):
            raise EnvelopeError(
                "bad_updated_at",
                f"the time is no whole number; it must be {self._unit} since 1970-01-01 UTC",
            )
        since = value // 1_000 if self._unit == "ns" else value * _UNITS[str(self._unit)]
        try:
            return (_EPOCH + timedelta(microseconds=since)).isoformat()
        except OverflowError:
            raise EnvelopeError(
                "bad_updated_at",
                f"the time is out of range; it must be {self._unit} since 1970-01-01 UTC",
            ) from None


class Lookup:
    """The values at pointers of a JSON text, as JSON. Several names may have one pointer."""

    def __init__(self, pointers: Mapping[str, str]) -> None:
        self._pointers = dict(pointers)
        self._places = tuple(dict.fromkeys(pointers.values()))
        self._lookup = PointerLookup([(place, Raw) for place in self._places or ("",)])

    def __call__(self, text: bytes | Raw) -> dict[str, Value]:
        """By name, what is there. Raises msgspec.DecodeError, RecursionError."""
        values = dict(zip(self._places, self._lookup(text), strict=False))
        return {
            name: value
            for name, place in self._pointers.items()
            if (value := values[place]) is not UNSET
        }


def _digits(text: str, most: int) -> str:
    """A number as text, cut where it is out of range anyway: Python makes none of thousands of
    digits. Zeros before it are no part of it."""
    return text.lstrip("0")[:most] or "0"


def named(values: Mapping[str, Value]) -> Name:
    """Id and version as JSON, a number that is an id as a text."""
    id, version = (_json(values.get(each, UNSET)) for each in ("id", "version"))
    if isinstance(id, Raw) and bytes(id).isdigit():
        id = Raw(b'"' + bytes(id) + b'"')
    return id, version


def _json(value: Value | UnsetType) -> Raw | UnsetType:
    return Raw(msgspec.json.encode(value)) if isinstance(value, str) else value
