"""Paths in requests (`path=/rate`): what they select, and whether a version changed it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from itertools import zip_longest
from typing import cast

from history.diff.align import Similarity, align
from history.diff.change import MISSING, Change, Maybe
from history.diff.identity import DEFAULT, Identity
from history.diff.path import escape, name_item, split, unescape
from history.diff.walk import changes
from history.documents.exactjson import Json, opened


class PathFault(Enum):
    """What is wrong with a text that is not a path."""

    SLASH = "a path starts with a slash"
    TILDE = "after ~ comes a digit from 0 to 4"
    ITEM = "a list item is written [field=value]"


class BadPath(ValueError):
    """The text is not a path. part: the part of it that is wrong."""

    def __init__(self, fault: PathFault, part: str) -> None:
        super().__init__(f"{fault.value}: {part!r}")
        self.fault, self.part = fault, part


@dataclass(frozen=True, slots=True)
class Segment:
    """One step of a path: any (`*`), an item by its key field, or an object's key or an index."""

    text: str
    field: str = ""
    kind: str = "key"  # "any", "item", "key"


Path = tuple[Segment, ...]


@lru_cache(maxsize=1024)
def parse(text: str) -> Path:
    """The steps of a pointer or key path; `*` stands for any one segment. Raises BadPath."""
    try:
        segments = split(text)
    except ValueError:
        raise BadPath(PathFault.SLASH, text) from None
    return tuple(_segment(segment) for segment in segments)


def _segment(segment: str) -> Segment:
    for code in segment.split("~")[1:]:
        if code[:1] not in ("0", "1", "2", "3", "4"):
            raise BadPath(PathFault.TILDE, segment)
    if segment == "*":
        return Segment("", kind="any")
    if segment.startswith("["):
        field, equals, value = segment[1:-1].partition("=")
        if not equals or not segment.endswith("]"):
            raise BadPath(PathFault.ITEM, segment)
        return Segment(unescape(value), unescape(field), "item")
    return Segment(unescape(segment))


def touches(path: str | Path, old: Json, new: Json, identity: Identity = DEFAULT) -> bool:
    """Whether a version with the snapshot `new` after `old` changed something at the path."""
    steps = parse(path) if isinstance(path, str) else path
    if differs(steps, old, new, identity):
        return True
    return any(matches(steps, change) for change in changes(old, new, identity))


def differs(path: str | Path, old: Maybe, new: Maybe, identity: Identity = DEFAULT) -> bool:
    """Whether what the path selects (see find) differs between two snapshots. An item named by its
    key is compared with those of the same key, in order; an index means a place; with `*` items are
    matched as in the diff."""
    steps = parse(path) if isinstance(path, str) else path
    pairs: list[_Selected] = [(old, new, "")]
    for step in steps:
        pairs = [inner for pair in pairs for inner in _inside_both(pair, step, identity)]
    return any(_differ(was, now, identity) for was, now, _ in pairs)


# What a path selects in the old and in the new snapshot, and its pointer in the new one.
_Selected = tuple[Maybe, Maybe, str]


def _inside_both(pair: _Selected, step: Segment, identity: Identity) -> Iterator[_Selected]:
    old, new, pointer = pair
    if old is new:
        return
    old, new = cast(Maybe, opened(old)), cast(Maybe, opened(new))
    if step.kind != "any":
        both = zip_longest(_inside(old, step), _inside(new, step), fillvalue=("", MISSING))
        for (_, was), (key, now) in both:
            yield was, now, f"{pointer}/{escape(key)}"
    elif type(old) is list and type(new) is list:
        places = align(old, new, identity.at(pointer), Similarity())
        for index, origin in enumerate(places.source):
            yield MISSING if origin < 0 else old[origin], new[index], f"{pointer}/{index}"
        for origin in places.gone:
            yield old[origin], MISSING, ""
    else:
        before, after = dict(_inside(old, step)), dict(_inside(new, step))
        for key in {**before, **after}:
            yield before.get(key, MISSING), after.get(key, MISSING), f"{pointer}/{escape(key)}"


def _differ(old: Maybe, new: Maybe, identity: Identity) -> bool:
    if old is MISSING or new is MISSING:
        return old is not new
    return bool(changes(old, new, identity))


def matches(path: str | Path, change: Change) -> bool:
    """Whether the path leads to this change, or to something above it. A step fits a list item by
    its key or its index. A path into what was added, removed or replaced fits if what it selects
    differs. A move changes nothing inside."""
    steps = parse(path) if isinstance(path, str) else path
    places, names = split(change.path), split(change.key_path)
    for step, place, name in zip(steps, places, names, strict=False):
        if not _fits(step, place, name):
            return False
    rest = steps[len(places) :]
    if not rest:
        return True
    return change.kind != "moved" and differs(rest, change.old, change.new)


def matching_first(path: str, found: Sequence[Change]) -> tuple[Change, ...]:
    """These changes, those that match the path before the others; otherwise in their order."""
    steps = parse(path)
    return tuple(sorted(found, key=lambda change: not matches(steps, change)))


def _fits(step: Segment, place: str, name: str) -> bool:
    if step.kind == "any":
        return True
    if step.kind == "item":
        return name == name_item(step.field, step.text)
    # If a removed field was in a moved item, the pointer has the old index, the key path the new.
    return unescape(place) == step.text or (name[:1] != "[" and unescape(name) == step.text)


def find(path: str | Path, document: Maybe) -> list[tuple[str, Json]]:
    """The pointer and the value of all that the path selects in a snapshot, in document order."""
    found: list[tuple[str, Json]] = [] if document is MISSING else [("", document)]
    for step in parse(path) if isinstance(path, str) else path:
        found = [
            (f"{pointer}/{escape(key)}", inner)
            for pointer, value in found
            for key, inner in _inside(value, step)
        ]
    return found


def _inside(value: Maybe, step: Segment) -> Iterator[tuple[str, Json]]:
    value = cast(Maybe, opened(value))
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


def _has_key(item: Json, step: Segment) -> bool:
    if type(item) is not dict:
        return False
    found = item.get(step.field)
    return type(found) in (str, int) and str(found) == step.text
