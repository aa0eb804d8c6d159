"""The leaves of a snapshot, and the paths by which they are shown and asked for."""

import sys
from collections.abc import Iterator
from typing import NamedTuple

from history.diff.identity import ListIdentity, list_item_segments
from history.diff.path import escape_key, name_key
from history.documents.exactjson import Json

# Characters of all paths of one comparison, or of all leaves of one document.
MAX_PATH_CHARACTERS = 16_000_000
NO_LIMIT = sys.maxsize
# Where there are more: a part with a longer pointer is one leaf.
SHORT_POINTER = 200


class LongPathsError(Exception):
    """The paths of a comparison are longer than MOST."""


def measure_longest_pointer(document: Json, identity: ListIdentity) -> int:
    """Return how long the pointer of a part may be before it counts as one leaf: NO_LIMIT or
    SHORT.
    """
    total = 0
    stack: list[tuple[Json, int]] = [(document, 0)]
    while stack:
        value, length = stack.pop()
        if type(value) is dict:
            inside = [(inner, length + 1 + len(key)) for key, inner in value.items()]
        elif type(value) is list:
            below = length + 1 + len(str(len(value)))
            inside = [(inner, below + _measure_item_name(inner, identity)) for inner in value]
        else:
            total += length
            continue
        if total + len(inside) * length > MAX_PATH_CHARACTERS:
            return SHORT_POINTER
        stack += inside
    return NO_LIMIT if total <= MAX_PATH_CHARACTERS else SHORT_POINTER


def _measure_item_name(item: Json, identity: ListIdentity) -> int:
    """Return how long the segment of a list item in a key path can be."""
    if type(item) is not dict:
        return 0
    values = [item.get(key) for key in identity.all_keys]
    return max((len(value) for value in values if type(value) is str), default=0)


class SnapshotLeaf(NamedTuple):
    """A scalar, an empty object or list, or a part nested too deep (msgspec.Raw) or with a pointer
    that is too long (long_paths). path: RFC 6901 pointer. key_path: with list items named by their
    unique key. history_path: the part of it before the first item without a key."""

    path: str
    key_path: str
    history_path: str
    value: Json


def generate_leaves(document: Json, identity: ListIdentity) -> Iterator[SnapshotLeaf]:
    """Generate all leaves in document order."""
    longest = measure_longest_pointer(document, identity)
    identity = identity if longest == NO_LIMIT else ListIdentity(())
    stack = [SnapshotLeaf("", "", "", document)]
    while stack:
        part = stack.pop()
        if type(part.value) in (dict, list) and part.value and len(part.path) <= longest:
            stack += reversed(list(_generate_inside(part, identity)))
        else:
            yield part


def _generate_inside(part: SnapshotLeaf, identity: ListIdentity) -> Iterator[SnapshotLeaf]:
    path, key_path, history_path, value = part
    followed = key_path == history_path
    if isinstance(value, dict):
        for key, inner in value.items():
            segment = escape_key(key)
            name = f"{key_path}/{name_key(segment)}"
            yield SnapshotLeaf(f"{path}/{segment}", name, name if followed else history_path, inner)
    elif isinstance(value, list):
        names = list_item_segments(value, identity.get_keys_at(path))
        for index, inner in enumerate(value):
            name = f"{key_path}/{names[index] or index}"
            has_name = followed and names[index]
            yield SnapshotLeaf(f"{path}/{index}", name, name if has_name else history_path, inner)
