"""Generates the leaves of a snapshot: the values that are not split further, with their paths."""

import sys
from collections.abc import Iterator
from typing import NamedTuple

from history.diff.identity import ListIdentity, list_item_segments
from history.diff.path import escape_key, name_key
from history.documents.exactjson import Json

# The most characters that all paths of one comparison, or of one snapshot's leaves, may have.
MAX_PATH_CHARACTERS = 16_000_000
NO_LIMIT = sys.maxsize
# If the paths of a snapshot have more characters than that, an object or list with a pointer longer
# than this is one leaf.
SHORT_POINTER = 200


class LongPathsError(Exception):
    """Raised if all paths of a comparison together have more than MAX_PATH_CHARACTERS."""


def choose_pointer_limit(snapshot: Json, identity: ListIdentity) -> int:
    """Choose the longest pointer with which an object or list is still split into leaves.

    An object or list with a longer pointer is one leaf.

    Returns:
        NO_LIMIT, or SHORT_POINTER if the paths of all leaves together would be too long.
    """
    total = 0
    stack: list[tuple[Json, int]] = [(snapshot, 0)]
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
    """Return the length of the item's longest text in any field that can identify list items.

    A key path names a list item by such a text. The result is 0 if the item has no such text.
    """
    if type(item) is not dict:
        return 0
    values = [item.get(key) for key in identity.all_keys]
    return max((len(value) for value in values if type(value) is str), default=0)


class SnapshotLeaf(NamedTuple):
    """A value in a snapshot that is not split further.

    A leaf is a scalar, an empty object or list, or an object or list that is nested too deep
    (msgspec.Raw) or has a pointer that is too long.
    """

    path: str  # RFC 6901 pointer
    key_path: str  # the path with list items named by their unique key
    history_path: str  # the beginning of the key path, up to the first item without a key
    value: Json


def generate_leaves(snapshot: Json, identity: ListIdentity) -> Iterator[SnapshotLeaf]:
    """Generate all leaves of a snapshot in the order of its text."""
    longest = choose_pointer_limit(snapshot, identity)
    identity = identity if longest == NO_LIMIT else ListIdentity(())
    stack = [SnapshotLeaf("", "", "", snapshot)]
    while stack:
        part = stack.pop()
        if type(part.value) in (dict, list) and part.value and len(part.path) <= longest:
            stack += reversed(list(_generate_parts(part, identity)))
        else:
            yield part


def _generate_parts(part: SnapshotLeaf, identity: ListIdentity) -> Iterator[SnapshotLeaf]:
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
