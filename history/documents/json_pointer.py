"""Reads the values at a few JSON pointers out of JSON text without parsing the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType


def split_pointer(pointer: str) -> list[str]:
    """Return the names in a JSON pointer, outermost first.

    The empty pointer, which leads to the whole document, gives an empty list.

    Raises:
        ValueError: `pointer` is not a JSON pointer.
    """
    if pointer and not pointer.startswith("/"):
        raise ValueError(f"{pointer!r} is not a JSON pointer: it must be empty or begin with /")
    segments = pointer.split("/")[1:]
    return [segment.replace("~1", "/").replace("~0", "~") for segment in segments]


def as_pointer(name_or_pointer: str) -> str:
    """Return a member's name as a pointer, or return a pointer unchanged."""
    if not name_or_pointer or name_or_pointer.startswith("/"):
        return name_or_pointer
    return "/" + name_or_pointer.replace("~", "~0").replace("/", "~1")


@dataclass(slots=True)
class _PointerNode:
    """A node in the tree of requested JSON pointers: the whole document or a member of an object.

    If a pointer ends at the node, `number` is not None. If pointers continue below the node,
    `members` is not empty.
    """

    number: int | None = None  # the position among the results, of a requested value
    value_type: Any = None  # the type of a requested value
    members: dict[str, _PointerNode] = field(default_factory=dict)


class PointerLookup:
    """A reader of the values at fixed JSON pointers. Create it once, and call it for each text."""

    def __init__(self, pointers: Sequence[tuple[str, Any]]) -> None:
        root = _PointerNode()
        for number, (pointer, value_type) in enumerate(pointers):
            node = root
            for segment in split_pointer(pointer):
                node = node.members.setdefault(segment, _PointerNode())
            node.number, node.value_type = number, value_type
        self._size = len(pointers)
        # Returns the requested part of a text as an object that msgspec can encode. Raises the
        # errors of __call__.
        self.decode: Callable[[bytes | memoryview | Raw], Any] = msgspec.json.Decoder(
            _make_node_type(root)
        ).decode
        self._collect = _make_collector(root)

    def __call__(self, text: bytes | memoryview | Raw) -> list[Any]:
        """Return the values in the order of the pointers; UNSET for a value that `text` lacks.

        Raises:
            msgspec.ValidationError: A value does not have the type that was declared for it.
            msgspec.DecodeError, RecursionError: The text cannot be read.
        """
        return self.collect_values(self.decode(text))

    def collect_values(self, decoded: Any) -> list[Any]:
        """Return the values at the pointers from an object that `decode` returned.

        The values are in the order of the pointers, with UNSET for a missing value.
        """
        values: list[Any] = [UNSET] * self._size
        self._collect(decoded, values)
        return values


def _make_node_type(node: _PointerNode) -> Any:
    """Return the type to which msgspec decodes the JSON value at a node.

    This is a struct of the members for a node with members, and the declared type of the value for
    a node at which a value is requested. For a node with members and a requested value it is Raw.
    """
    if not node.members:
        return node.value_type
    if node.number is not None:
        return Raw
    names = {f"member{number}": name for number, name in enumerate(node.members)}
    fields: list[Any] = [
        (name, _make_node_type(node.members[member]) | UnsetType | None, UNSET)
        if _make_node_type(node.members[member]) is not Raw
        else (name, Raw | UnsetType, UNSET)
        for name, member in names.items()
    ]
    return msgspec.defstruct("Members", fields, rename=names, gc=False)


def _make_collector(node: _PointerNode) -> Callable[[Any, list[Any]], None]:
    """Make a function that copies requested values into the list of results.

    The arguments of the function are the decoded JSON value at `node`, and the list.
    """
    number = node.number
    if not node.members:
        if number is None:  # there are no pointers at all
            return lambda _value, _values: None

        def collect_leaf(value: Any, values: list[Any]) -> None:
            values[number] = value

        return collect_leaf
    if number is not None:
        inner = _PointerNode(members=node.members)
        decode, collect = (
            msgspec.json.Decoder(_make_node_type(inner)).decode,
            _make_collector(inner),
        )

        def collect_node(value: Any, values: list[Any]) -> None:
            values[number] = value
            collect(decode(value), values)

        return collect_node
    members = [
        (f"member{n}", _make_collector(member)) for n, member in enumerate(node.members.values())
    ]

    def collect_members(value: Any, values: list[Any]) -> None:
        for name, collect in members:
            member = getattr(value, name)
            if member is not UNSET and member is not None:
                collect(member, values)

    return collect_members
