"""Paths of requests (`path=/rate`): what they select, and whether a version changed that."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from itertools import zip_longest
from typing import cast

from history.diff.align import SimilarItems, align_lists
from history.diff.change import MISSING, MaybeJson, ValueChange
from history.diff.identity import DEFAULT_IDENTITY, ListIdentity
from history.diff.path import escape_key, name_item, split_path, unescape_segment
from history.diff.walk import list_changes
from history.documents.exactjson import Json, open_raw


class PathFault(Enum):
    """The mistakes that make a text not a path."""

    SLASH = "a path starts with a slash"
    TILDE = "after ~ comes a digit from 0 to 4"
    ITEM = "a list item is written [field=value]"


class BadPathError(ValueError):
    """The text is not a path. part: the part of it that is wrong."""

    def __init__(self, fault: PathFault, part: str) -> None:
        super().__init__(f"{fault.value}: {part!r}")
        self.fault, self.part = fault, part


@dataclass(frozen=True, slots=True)
class PathSegment:
    """One step of a path: any (`*`), an item by its key field, or an object's key or an index."""

    text: str
    field: str = ""
    kind: str = "key"  # "any", "item", "key"


ParsedPath = tuple[PathSegment, ...]


@lru_cache(maxsize=1024)
def parse_path(text: str) -> ParsedPath:
    """Return the steps of a pointer or key path. `*` stands for any one segment.

    Raises:
        BadPathError: The text is not a path.
    """
    try:
        segments = split_path(text)
    except ValueError:
        raise BadPathError(PathFault.SLASH, text) from None
    return tuple(_parse_segment(segment) for segment in segments)


def _parse_segment(segment: str) -> PathSegment:
    for code in segment.split("~")[1:]:
        if code[:1] not in ("0", "1", "2", "3", "4"):
            raise BadPathError(PathFault.TILDE, segment)
    if segment == "*":
        return PathSegment("", kind="any")
    if segment.startswith("["):
        field, equals, value = segment[1:-1].partition("=")
        if not equals or not segment.endswith("]"):
            raise BadPathError(PathFault.ITEM, segment)
        return PathSegment(unescape_segment(value), unescape_segment(field), "item")
    return PathSegment(unescape_segment(segment))


def is_touched(
    path: str | ParsedPath, old: Json, new: Json, identity: ListIdentity = DEFAULT_IDENTITY
) -> bool:
    """Return whether the step from snapshot `old` to `new` changed something at the path."""
    steps = parse_path(path) if isinstance(path, str) else path
    if is_different(steps, old, new, identity):
        return True
    return any(is_matching(steps, change) for change in list_changes(old, new, identity))


def is_different(
    path: str | ParsedPath,
    old: MaybeJson,
    new: MaybeJson,
    identity: ListIdentity = DEFAULT_IDENTITY,
) -> bool:
    """Return whether the values that the path selects differ between two snapshots.

    An item named by its key is compared with the items of the same key, in order. An index means a
    place. With `*`, items are matched as in the diff. See find_values.
    """
    steps = parse_path(path) if isinstance(path, str) else path
    pairs: list[_SelectedPair] = [(old, new, "")]
    for step in steps:
        pairs = [inner for pair in pairs for inner in _select_in_both(pair, step, identity)]
    return any(_is_different(old_value, new_value, identity) for old_value, new_value, _ in pairs)


# The values that a path selects in the old and the new snapshot, and the pointer in the new one.
_SelectedPair = tuple[MaybeJson, MaybeJson, str]


def _select_in_both(
    pair: _SelectedPair, step: PathSegment, identity: ListIdentity
) -> Iterator[_SelectedPair]:
    old, new, pointer = pair
    if old is new:
        return
    old, new = cast(MaybeJson, open_raw(old)), cast(MaybeJson, open_raw(new))
    if step.kind != "any":
        matched = zip_longest(
            _generate_inside(old, step), _generate_inside(new, step), fillvalue=("", MISSING)
        )
        for (_, old_value), (key, new_value) in matched:
            yield old_value, new_value, f"{pointer}/{escape_key(key)}"
    elif type(old) is list and type(new) is list:
        alignment = align_lists(old, new, identity.get_keys_at(pointer), SimilarItems())
        for index, origin in enumerate(alignment.source):
            yield MISSING if origin < 0 else old[origin], new[index], f"{pointer}/{index}"
        for origin in alignment.removed:
            yield old[origin], MISSING, ""
    else:
        before, after = dict(_generate_inside(old, step)), dict(_generate_inside(new, step))
        for key in {**before, **after}:
            yield before.get(key, MISSING), after.get(key, MISSING), f"{pointer}/{escape_key(key)}"


def _is_different(old: MaybeJson, new: MaybeJson, identity: ListIdentity) -> bool:
    if old is MISSING or new is MISSING:
        return old is not new
    return bool(list_changes(old, new, identity))


def is_matching(path: str | ParsedPath, change: ValueChange) -> bool:
    """Return whether the path leads to this change, or to something above it.

    A step fits a list item by its key or its index. A path into what was added, removed or replaced
    fits if what it selects differs. A move changes nothing inside.
    """
    steps = parse_path(path) if isinstance(path, str) else path
    pointer_segments, names = split_path(change.path), split_path(change.key_path)
    for step, pointer_segment, name in zip(steps, pointer_segments, names, strict=False):
        if not _is_matching_step(step, pointer_segment, name):
            return False
    steps_below = steps[len(pointer_segments) :]
    if not steps_below:
        return True
    return change.kind != "moved" and is_different(steps_below, change.old, change.new)


def order_matching_first(path: str, all_changes: Sequence[ValueChange]) -> tuple[ValueChange, ...]:
    """Return the changes with those first that match the path; otherwise in their order."""
    steps = parse_path(path)
    return tuple(sorted(all_changes, key=lambda change: not is_matching(steps, change)))


def _is_matching_step(step: PathSegment, pointer_segment: str, name: str) -> bool:
    if step.kind == "any":
        return True
    if step.kind == "item":
        return name == name_item(step.field, step.text)
    # If a removed field was in a moved item, the pointer has the old index, the key path the new.
    return unescape_segment(pointer_segment) == step.text or (
        name[:1] != "[" and unescape_segment(name) == step.text
    )


def find_values(path: str | ParsedPath, document: MaybeJson) -> list[tuple[str, Json]]:
    """Return pointer and value of all that the path selects in a snapshot, in document order."""
    values: list[tuple[str, Json]] = [] if document is MISSING else [("", document)]
    for step in parse_path(path) if isinstance(path, str) else path:
        values = [
            (f"{pointer}/{escape_key(key)}", inner)
            for pointer, value in values
            for key, inner in _generate_inside(value, step)
        ]
    return values


def _generate_inside(value: MaybeJson, step: PathSegment) -> Iterator[tuple[str, Json]]:
    value = cast(MaybeJson, open_raw(value))
    if type(value) is dict:
        if step.kind == "any":
            yield from value.items()
        elif step.kind == "key" and step.text in value:
            yield step.text, value[step.text]
    elif type(value) is list:
        if step.kind == "key":
            if step.text.isdecimal() and len(step.text) < 10 and str(int(step.text)) == step.text:
                index = int(step.text)
                if index < len(value):
                    yield step.text, value[index]
            return
        for index, item in enumerate(value):
            if step.kind == "any" or _has_key(item, step):
                yield str(index), item


def _has_key(item: Json, step: PathSegment) -> bool:
    if type(item) is not dict:
        return False
    value = item.get(step.field)
    return type(value) in (str, int) and str(value) == step.text
