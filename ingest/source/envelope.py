"""The envelope of a snapshot: the contract's fields, or declared ones. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Protocol, TypeAlias, get_type_hints

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from history.json_pointer import PointerError, PointerLookup, as_pointer
from history.record import AUTHOR_LENGTH, CLIENT_ID_LENGTH, ID_LENGTH, MAX_VERSION
from ingest.source.message import Message

Identifier = Annotated[str, Meta(min_length=1, max_length=ID_LENGTH)]


class Envelope(msgspec.Struct, gc=False, rename="camel"):
    """The message's fields; unknown ones are ignored."""

    id: Identifier
    version: Annotated[int, Meta(ge=0, le=MAX_VERSION)]
    updated_at: str
    client_id: Annotated[str, Meta(min_length=1, max_length=CLIENT_ID_LENGTH)]
    data: Raw | UnsetType = UNSET
    type: int | str | None = None
    rev_type: int | str | None = None
    author: Annotated[str, Meta(max_length=AUTHOR_LENGTH)] | None = None
    product_instance_id: Annotated[str, Meta(max_length=ID_LENGTH)] | None = None


_FIELDS = {each.encode_name: each for each in msgspec.structs.fields(Envelope)}
_TYPES = get_type_hints(Envelope, include_extras=True)


Name: TypeAlias = tuple[Raw | UnsetType, Raw | UnsetType]


class WithoutValue(Enum):
    """What a message without a value is."""

    BAD = "bad"
    REPEATED = "repeated"  # it says nothing that the message before it did not say
    READ = "read"  # its headers say all


class EnvelopeError(ValueError):
    """A message is not in its envelope. reason: a value of decode.Reason. The text is a sentence
    without content of the document."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class Reader(Protocol):
    """Reads the envelopes of one topic. pointers: of the contract's fields, for sentences.
    key_is_id: whether the message's key may be its id."""

    pointers: Mapping[str, str]
    key_is_id: bool

    def without_value(self, message: Message, /) -> WithoutValue: ...

    def read(self, message: Message, /) -> Envelope:
        """Raises msgspec.ValidationError that names the missing or wrong field,
        msgspec.DecodeError, UnicodeDecodeError, RecursionError, EnvelopeError."""

    def name(self, message: Message, /) -> Name:
        """What is where id and version should be, whatever it is. Raises as read() does."""


Shapes: TypeAlias = Mapping[str, Reader]


class ShapeError(ValueError):
    """A declaration of envelopes is wrong."""


class Shape:
    """The positions of the fields in one topic's envelopes.

    places: the contract's field names, each with a field name or a JSON pointer. Fields that are
    not listed are where the contract has them. The empty pointer is the whole message.
    pointers: the pointer of each of the contract's fields.
    """

    key_is_id = True

    def __init__(self, places: Mapping[str, str]) -> None:
        unknown = sorted(set(places) - set(_FIELDS))
        if unknown:
            raise ShapeError(f"{unknown[0]!r} is not a field of the envelope: {', '.join(_FIELDS)}")
        self.pointers: Mapping[str, str] = {
            name: as_pointer(places.get(name, name)) for name in _FIELDS
        }
        self._names = [_FIELDS[name].name for name in _FIELDS]
        wanted = [
            (pointer, Raw if name == "data" else _TYPES[_FIELDS[name].name])
            for name, pointer in self.pointers.items()
        ]
        name = [(self.pointers[each], Raw) for each in ("id", "version")]
        try:
            self._lookup = PointerLookup(wanted)
            self._name_lookup = PointerLookup(name)
        except PointerError as error:
            raise ShapeError(str(error)) from None

    def without_value(self, _: Message) -> WithoutValue:
        """What a message without a value is."""
        return WithoutValue.BAD

    def read(self, message: Message) -> Envelope:
        """The envelope of one message.

        Raises msgspec.ValidationError that names the missing or wrong field, msgspec.DecodeError,
        RecursionError.
        """
        found = zip(self._names, self._lookup(message.value or b""), strict=True)
        there = {name: each for name, each in found if each is not UNSET}
        for name, pointer in self.pointers.items():
            field = _FIELDS[name]
            if field.required and field.name not in there:
                raise msgspec.ValidationError(f"Object has nothing at `{pointer}`, the {name}")
        return Envelope(**there)

    def name(self, message: Message) -> Name:
        """What is where id and version should be, whatever it is. Raises msgspec.DecodeError,
        RecursionError."""
        id, version = self._name_lookup(message.value or b"")
        return id, version
