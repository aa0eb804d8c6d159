"""Filters versions and changes by the path of a request, such as `path=/rate`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from itertools import zip_longest
from typing import cast

from history.diff.align import SimilarItemMatcher, align_lists
from history.diff.change import MISSING, MaybeJson, ValueChange
from history.diff.identity import DEFAULT_IDENTITY, ListIdentity
from history.diff.path import escape_key, name_item, split_path, unescape_segment
from history.diff.walk import list_changes
from history.documents.exactjson import Json, open_raw
from history.documents.top_level_fields import is_readable_name


class PathFault(Enum):
    """The mistakes that a path can have."""

    SLASH = "a path starts with a slash"
    TILDE = "a ~ is followed by a digit from 0 to 4"
    ITEM = "a list item is written [field=value]"


class BadPathError(ValueError):
    """Raised if a text is not a path. `part` is the wrong part of the text."""

    def __init__(self, fault: PathFault, part: str) -> None:
        super().__init__(f"{fault.value}: {part!r}")
        self.fault, self.part = fault, part


@dataclass(frozen=True, slots=True)
class PathSegment:
    """One step of a path: a key of an object, a list index, `*`, or a list item `[field=value]`."""

    text: str  # the key or index; of an "item", the value of its key field
    field: str = ""  # the key field of an "item"
    kind: str = "key"  # "any" (`*`), "item" (`[field=value]`) or "key" (also an index)


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


def get_top_level_field(path: str) -> str | None:
    """Return the name of the top-level field that a path leads into.

    None if the path can lead into several fields, or if `top_level_fields.read_field` cannot read a
    field of this name.
    """
    steps = parse_path(path)
    if not steps or steps[0].kind != "key" or not is_readable_name(steps[0].text):
        return None
    return steps[0].text


def is_touched(
    path: str | ParsedPath, old: Json, new: Json, identity: ListIdentity = DEFAULT_IDENTITY
) -> bool:
    """Return whether a change between two snapshots concerns a path.

    This is so if the values at the path differ, or if `is_matching` is True for one of the changes.
    For example, the move of a list item does not change the item, but concerns the item's path.
    """
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

    If the path names a list item by its key, the items with that key are compared, in order. If the
    path has an index, the items at that index are compared. At a `*`, list items are matched by
    `align_lists`.
    """
    steps = parse_path(path) if isinstance(path, str) else path
    pairs: list[_SelectedPair] = [(old, new, "")]
    for step in steps:
        pairs = [inner for pair in pairs for inner in _select_in_both(pair, step, identity)]
    return any(_has_changes(old_value, new_value, identity) for old_value, new_value, _ in pairs)


# A selected value in the old snapshot, the one in the new snapshot, and the pointer to the latter.
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
            _generate_selected(old, step), _generate_selected(new, step), fillvalue=("", MISSING)
        )
        for (_, old_value), (key, new_value) in matched:
            yield old_value, new_value, f"{pointer}/{escape_key(key)}"
    elif type(old) is list and type(new) is list:
        alignment = align_lists(old, new, identity.get_keys_at(pointer), SimilarItemMatcher())
        for index, origin in enumerate(alignment.source):
            yield MISSING if origin < 0 else old[origin], new[index], f"{pointer}/{index}"
        for origin in alignment.removed:
            yield old[origin], MISSING, ""
    else:
        before, after = dict(_generate_selected(old, step)), dict(_generate_selected(new, step))
        for key in {**before, **after}:
            yield before.get(key, MISSING), after.get(key, MISSING), f"{pointer}/{escape_key(key)}"


def _has_changes(old: MaybeJson, new: MaybeJson, identity: ListIdentity) -> bool:
    if old is MISSING or new is MISSING:
        return old is not new
    return bool(list_changes(old, new, identity))


def is_matching(path: str | ParsedPath, change: ValueChange) -> bool:
    """Return whether a change concerns a path.

    A change at the path or below it concerns the path. A change that added, removed or replaced an
    object or list above the path concerns the path if the old and the new value at the path differ.
    The move of a list item does not concern paths inside the item. A step of the path matches a
    list item by key or by index.
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
    """Return the changes that concern the path, then all other changes, each group in order."""
    steps = parse_path(path)
    return tuple(sorted(all_changes, key=lambda change: not is_matching(steps, change)))


def _is_matching_step(step: PathSegment, pointer_segment: str, name: str) -> bool:
    if step.kind == "any":
        return True
    if step.kind == "item":
        return name == name_item(step.field, step.text)
    # If a field was removed from a moved item, its pointer has the old index of the item, and its
    # key path the new index.
    return unescape_segment(pointer_segment) == step.text or (
        name[:1] != "[" and unescape_segment(name) == step.text
    )


def find_values(path: str | ParsedPath, snapshot: MaybeJson) -> list[tuple[str, Json]]:
    """Return the pointer and the value of everything in a snapshot that the path selects."""
    values: list[tuple[str, Json]] = [] if snapshot is MISSING else [("", snapshot)]
    for step in parse_path(path) if isinstance(path, str) else path:
        values = [
            (f"{pointer}/{escape_key(key)}", inner)
            for pointer, value in values
            for key, inner in _generate_selected(value, step)
        ]
    return values


def _generate_selected(value: MaybeJson, step: PathSegment) -> Iterator[tuple[str, Json]]:
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
