"""The leaves of a snapshot, and the paths by which each is shown and asked for."""

from collections.abc import Iterator
from typing import NamedTuple

from history.diff import own_keys
from history.diff.identity import Identity
from history.diff.path import escape, name_key
from history.exactjson import Json

# What is nested deeper counts as one leaf.
MAX_DEPTH = 200


class Leaf(NamedTuple):
    """A scalar, or an empty object or list, and where it is.

    path: RFC 6901 pointer. key_path: the same place with list items named by their key, where
    they have one that no other item of the list shares. history_path: the part of the key path
    before the first list item without a key; by it the value can be followed through all
    versions, because an item that is known by its index only may stand elsewhere in them.
    """

    path: str
    key_path: str
    history_path: str
    value: Json


def leaves(document: Json, identity: Identity) -> Iterator[Leaf]:
    """All leaves in document order."""
    stack = [(Leaf("", "", "", document), 0)]
    while stack:
        place, depth = stack.pop()
        value = place.value
        if type(value) not in (dict, list) or not value or depth >= MAX_DEPTH:
            yield place
        else:
            inside = list(_inside(place, identity))
            stack += [(inner, depth + 1) for inner in reversed(inside)]


def _inside(place: Leaf, identity: Identity) -> Iterator[Leaf]:
    path, key_path, history_path, value = place
    followed = key_path == history_path
    if isinstance(value, dict):
        for key, inner in value.items():
            segment = escape(key)
            name = f"{key_path}/{name_key(segment)}"
            yield Leaf(f"{path}/{segment}", name, name if followed else history_path, inner)
    elif isinstance(value, list):
        names = own_keys.segments(value, identity.at(path))
        for index, inner in enumerate(value):
            name = f"{key_path}/{names[index] or index}"
            known = followed and names[index]
            yield Leaf(f"{path}/{index}", name, name if known else history_path, inner)
