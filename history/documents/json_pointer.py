"""Values at a few JSON pointers, taken out of JSON text without parsing the rest. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType


def segments(pointer: str) -> list[str]:
    """The members that a JSON pointer names, from the outside in; none for the whole text. Raises
    ValueError."""
    if pointer and not pointer.startswith("/"):
        raise ValueError(f"{pointer!r} is not a JSON pointer: it must be empty or begin with /")
    parts = pointer.split("/")[1:]
    return [part.replace("~1", "/").replace("~0", "~") for part in parts]


def as_pointer(place: str) -> str:
    """The name of a member as a pointer; a pointer stays as it is."""
    if not place or place.startswith("/"):
        return place
    return "/" + place.replace("~", "~0").replace("/", "~1")


@dataclass(slots=True)
class _Node:
    """A member that is wanted (number: which), or on the way to one that is."""

    number: int | None = None
    kind: Any = None
    members: dict[str, _Node] = field(default_factory=dict)


class PointerLookup:
    """Made once for the pointers and the types of their values, then called for each text."""

    def __init__(self, wanted: Sequence[tuple[str, Any]]) -> None:
        root = _Node()
        for number, (pointer, kind) in enumerate(wanted):
            node = root
            for segment in segments(pointer):
                node = node.members.setdefault(segment, _Node())
            node.number, node.kind = number, kind
        self._size = len(wanted)
        # What is wanted of a text, in an object that msgspec can encode. Raises as a call does.
        self.decode: Callable[[bytes | memoryview | Raw], Any] = msgspec.json.Decoder(
            _type(root)
        ).decode
        self._collect = _collector(root)

    def __call__(self, text: bytes | memoryview | Raw) -> list[Any]:
        """The values in the order in which they were wanted; UNSET for what is not there. Raises
        msgspec.ValidationError for a value of another type, msgspec.DecodeError, RecursionError."""
        return self.values(self.decode(text))

    def values(self, decoded: Any) -> list[Any]:
        """The same of what decode() returned."""
        found: list[Any] = [UNSET] * self._size
        self._collect(decoded, found)
        return found


def _type(node: _Node) -> Any:
    """What to decode a node as: a struct of its members, or the wanted type itself."""
    if not node.members:
        return node.kind
    if node.number is not None:
        return Raw
    names = {f"member{number}": name for number, name in enumerate(node.members)}
    fields: list[Any] = [
        (name, _type(node.members[member]) | UnsetType | None, UNSET)
        if _type(node.members[member]) is not Raw
        else (name, Raw | UnsetType, UNSET)
        for name, member in names.items()
    ]
    return msgspec.defstruct("Members", fields, rename=names, gc=False)


def _collector(node: _Node) -> Callable[[Any, list[Any]], None]:
    """What puts a decoded node's values into their places."""
    number = node.number
    if not node.members:
        assert number is not None  # a leaf is wanted  # noqa: S101

        def leaf(value: Any, found: list[Any]) -> None:
            found[number] = value

        return leaf
    if number is not None:
        inner = _Node(members=node.members)
        decode, collect = msgspec.json.Decoder(_type(inner)).decode, _collector(inner)

        def both(value: Any, found: list[Any]) -> None:
            found[number] = value
            collect(decode(value), found)

        return both
    members = [(f"member{n}", _collector(each)) for n, each in enumerate(node.members.values())]

    def branch(value: Any, found: list[Any]) -> None:
        for name, collect in members:
            member = getattr(value, name)
            if member is not UNSET and member is not None:
                collect(member, found)

    return branch
