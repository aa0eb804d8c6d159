"""The envelope of a snapshot: the contract's fields, or declared ones. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, get_type_hints

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from history.entities import BY_TOPIC
from history.json_pointer import PointerError, PointerLookup
from history.record import AUTHOR_LENGTH, CLIENT_ID_LENGTH, ID_LENGTH, MAX_VERSION

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


class ShapeError(ValueError):
    """A declaration of envelopes is wrong."""


class Shape:
    """The positions of the fields in one topic's envelopes.

    places: the contract's field names, each with a field name or a JSON pointer. Fields that are
    not listed are where the contract has them. The empty pointer is the whole message.
    """

    def __init__(self, places: Mapping[str, str]) -> None:
        unknown = sorted(set(places) - set(_FIELDS))
        if unknown:
            raise ShapeError(f"{unknown[0]!r} is not a field of the envelope: {', '.join(_FIELDS)}")
        self._pointers = {name: _pointer(places.get(name, name)) for name in _FIELDS}
        self._names = [_FIELDS[name].name for name in _FIELDS]
        wanted = [
            (pointer, Raw if name == "data" else _TYPES[_FIELDS[name].name])
            for name, pointer in self._pointers.items()
        ]
        name = [(self._pointers[each], Raw) for each in ("id", "version")]
        try:
            self._lookup = PointerLookup(wanted)
            self._name_lookup = PointerLookup(name)
        except PointerError as error:
            raise ShapeError(str(error)) from None

    def read(self, value: bytes) -> Envelope:
        """The envelope of one message.

        Raises msgspec.ValidationError that names the missing or wrong field, msgspec.DecodeError,
        RecursionError.
        """
        found = zip(self._names, self._lookup(value), strict=True)
        there = {name: each for name, each in found if each is not UNSET}
        for name, pointer in self._pointers.items():
            field = _FIELDS[name]
            if field.required and field.name not in there:
                raise msgspec.ValidationError(f"Object has nothing at `{pointer}`, the {name}")
        return Envelope(**there)

    def name(self, value: bytes) -> tuple[Raw | UnsetType, Raw | UnsetType]:
        """What is where id and version should be, whatever it is. Raises msgspec.DecodeError,
        RecursionError."""
        id, version = self._name_lookup(value)
        return id, version


Shapes = Mapping[str, Shape]
CONTRACT: Shapes = {}


def shapes(text: bytes) -> Shapes:
    """Declarations from JSON text: topics, each with the places of fields. Raises ShapeError."""
    try:
        declared = msgspec.json.decode(text, type=dict[str, dict[str, str]])
    except msgspec.MsgspecError as error:
        raise ShapeError(str(error)) from None
    unknown = sorted(set(declared) - set(BY_TOPIC))
    if unknown:
        raise ShapeError(f"no entity is declared for topic {unknown[0]!r}")
    return {topic: Shape(places) for topic, places in declared.items()}


def _pointer(place: str) -> str:
    """A field name as a pointer; a pointer stays as it is."""
    if not place or place.startswith("/"):
        return place
    return "/" + place.replace("~", "~0").replace("/", "~1")
