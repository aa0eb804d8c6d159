"""The reference for blame: follows every leaf through all older snapshots, one by one."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from tests.oracle.reference import ReferenceStore, StoredVersion
from tests.oracle.values import ABSENT, Value, find_at_pointer, get_item_key

KEYS = ("pid", "id")
# A value that is nested deeper than this many levels counts as one leaf.
DEEPEST = 100


@dataclass(frozen=True)
class ReferenceLeaf:
    """A leaf of the newest snapshot, and the version that set it."""

    path: str
    value: Value
    # Several versions if the answer is not unique, because list items without a key are matched by
    # their contents.
    origins: list[StoredVersion]


def list_leaves(model: ReferenceStore, kind: str, id: str) -> list[ReferenceLeaf]:
    """Return the leaves of the newest snapshot in document order."""
    chain = list(model.list_chain(kind, id))
    return [
        ReferenceLeaf(path, value, _find_origins(chain, path, value))
        for path, value in _iterate_leaves(chain[0].data)
    ]


def _iterate_leaves(value: Value, path: str = "", level: int = 0) -> Iterator[tuple[str, Value]]:
    if not isinstance(value, dict | list) or not value or level == DEEPEST:
        yield path, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            segment = key.replace("~", "~0").replace("/", "~1")
            yield from _iterate_leaves(inner, f"{path}/{segment}", level + 1)
    else:
        for index, inner in enumerate(value):
            yield from _iterate_leaves(inner, f"{path}/{index}", level + 1)


def _find_origins(chain: list[StoredVersion], path: str, value: Value) -> list[StoredVersion]:
    for position, (version, before) in enumerate(pairwise(chain)):
        try:
            path_before = _follow_pointer(path, version.data, before.data)
        except AmbiguousItemError:
            older = pairwise(chain[position:])
            return [version for version, lower in older if version.data != lower.data] + chain[-1:]
        if path_before is None or find_at_pointer(path_before, before.data) != value:
            return [version]
        path = path_before
    return chain[-1:]


class AmbiguousItemError(Exception):
    """Raised when a list item has no key by which it can be found in the older list."""


def _follow_pointer(path: str, new: Value, old: Value) -> str | None:
    """Return the pointer in `old` to the value that `path` points to in `new`.

    List items are found by their keys, not by their indexes.

    Returns:
        A JSON pointer, or None if `old` does not have the value.
    """
    pointer = ""
    for segment in path.split("/")[1:]:
        if isinstance(new, dict) and isinstance(old, dict):
            inner = segment
        elif isinstance(new, list) and isinstance(old, list):
            index = _find_old_index(new, old, int(segment))
            if index is None:
                return None
            inner = str(index)
        else:
            return None
        new, old = find_at_pointer(f"/{segment}", new), find_at_pointer(f"/{inner}", old)
        if old is ABSENT:
            return None
        pointer += f"/{inner}"
    return pointer


def _find_old_index(new: list[Value], old: list[Value], index: int) -> int | None:
    """Return the index in the old list of the item that is at `index` in the new list.

    Raises:
        AmbiguousItemError: Several old items can be this item.
    """
    if new == old:
        return index
    for key in KEYS:
        names, old_names = [get_item_key(i, key) for i in new], [get_item_key(i, key) for i in old]
        if _has_distinct_names(names) and _has_distinct_names(old_names):
            return old_names.index(names[index]) if names[index] in old_names else None
    matched: dict[int, int] = {}
    for key in KEYS:
        names, old_names = [get_item_key(i, key) for i in new], [get_item_key(i, key) for i in old]
        for position, name in enumerate(names):
            if name is not None and names.count(name) == old_names.count(name) == 1:
                origin = old_names.index(name)
                if position not in matched and origin not in matched.values():
                    matched[position] = origin
    if index in matched:
        return matched[index]
    unmatched = [item for origin, item in enumerate(old) if origin not in matched.values()]
    if any(not _has_conflict(item, new[index]) for item in unmatched):
        raise AmbiguousItemError
    return None


def _has_distinct_names(names: list[str | None]) -> bool:
    return None not in names and len(set(names)) == len(names)


def _has_conflict(old: Value, new: Value) -> bool:
    """Return whether the two items have different values at the first of KEYS that both have."""
    for key in KEYS:
        was, now = get_item_key(old, key), get_item_key(new, key)
        if was is not None and now is not None:
            return was != now
    return False
