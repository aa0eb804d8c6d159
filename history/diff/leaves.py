"""The leaves of a snapshot, and the paths by which each is shown and asked for."""

import sys
from collections.abc import Iterator
from typing import NamedTuple

from history.diff.identity import Identity, segments
from history.diff.path import escape, name_key
from history.documents.exactjson import Json

# Characters of all paths of one comparison, or of all leaves of one document.
MOST = 16_000_000
NO_LIMIT = sys.maxsize
# Where there are more: a part with a longer pointer is one leaf.
SHORT = 200


class LongPathsError(Exception):
    """The paths of a comparison are longer than MOST."""


def longest_pointer(document: Json, identity: Identity) -> int:
    """How long the pointer of a part may be that is not yet a leaf: NO_LIMIT or SHORT."""
    total = 0
    stack: list[tuple[Json, int]] = [(document, 0)]
    while stack:
        value, length = stack.pop()
        if type(value) is dict:
            inside = [(inner, length + 1 + len(key)) for key, inner in value.items()]
        elif type(value) is list:
            below = length + 1 + len(str(len(value)))
            inside = [(inner, below + _name_length(inner, identity)) for inner in value]
        else:
            total += length
            continue
        if total + len(inside) * length > MOST:
            return SHORT
        stack += inside
    return NO_LIMIT if total <= MOST else SHORT


def _name_length(item: Json, identity: Identity) -> int:
    """How long the segment of a list item in a key path can be."""
    if type(item) is not dict:
        return 0
    values = [item.get(key) for key in identity.all_keys]
    return max((len(value) for value in values if type(value) is str), default=0)


class Leaf(NamedTuple):
    """A scalar, an empty object or list, or a part nested too deep (msgspec.Raw) or with a pointer
    that is too long (long_paths). path: RFC 6901 pointer. key_path: with list items named by their
    unique key. history_path: the part of it before the first item without a key."""

    path: str
    key_path: str
    history_path: str
    value: Json


def leaves(document: Json, identity: Identity) -> Iterator[Leaf]:
    """All leaves in document order."""
    longest = longest_pointer(document, identity)
    identity = identity if longest == NO_LIMIT else Identity(())
    stack = [Leaf("", "", "", document)]
    while stack:
        place = stack.pop()
        if type(place.value) in (dict, list) and place.value and len(place.path) <= longest:
            stack += reversed(list(_inside(place, identity)))
        else:
            yield place


def _inside(place: Leaf, identity: Identity) -> Iterator[Leaf]:
    path, key_path, history_path, value = place
    followed = key_path == history_path
    if isinstance(value, dict):
        for key, inner in value.items():
            segment = escape(key)
            name = f"{key_path}/{name_key(segment)}"
            yield Leaf(f"{path}/{segment}", name, name if followed else history_path, inner)
    elif isinstance(value, list):
        names = segments(value, identity.at(path))
        for index, inner in enumerate(value):
            name = f"{key_path}/{names[index] or index}"
            known = followed and names[index]
            yield Leaf(f"{path}/{index}", name, name if known else history_path, inner)
