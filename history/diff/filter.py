"""Paths in requests (`path=/rate`): which changes and which values they select."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from history.diff.change import MISSING, Change, Maybe
from history.diff.path import escape, name_item, split, unescape
from history.diff.walk import changes
from history.exactjson import Json


class BadPath(ValueError):
    """The text is not a path; the message says why."""


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
        return tuple(_segment(segment) for segment in split(text))
    except ValueError as error:
        raise BadPath(str(error)) from None


def _segment(segment: str) -> Segment:
    for code in segment.split("~")[1:]:
        if code[:1] not in ("0", "1", "2", "3", "4"):
            raise ValueError(f"after ~ comes a digit from 0 to 4: {segment!r}")
    if segment == "*":
        return Segment("", kind="any")
    if segment.startswith("["):
        field, equals, value = segment[1:-1].partition("=")
        if not equals or not segment.endswith("]"):
            raise ValueError(f"a list item is written [field=value]: {segment!r}")
        return Segment(unescape(value), unescape(field), "item")
    return Segment(unescape(segment))


def matches(path: str | Path, change: Change) -> bool:
    """Whether this change changed what is at the path, or anything below it.

    A step fits a list item by its key or by its index: in the new list, of removed items in the
    old one.
    Where something larger came, went or was replaced, the path is looked up in the old and in the
    new value. A move of a larger thing changes nothing inside it.
    """
    steps = parse(path) if isinstance(path, str) else path
    places, names = split(change.path), split(change.key_path)
    for step, place, name in zip(steps, places, names, strict=False):
        if not _fits(step, place, name):
            return False
    rest = steps[len(places) :]
    if not rest:
        return True
    if change.kind == "moved":
        return False
    old, new = dict(_values(change.old, rest)), dict(_values(change.new, rest))
    return old.keys() != new.keys() or any(changes(old[place], new[place]) for place in old)


def _fits(step: Segment, place: str, name: str) -> bool:
    if step.kind == "any":
        return True
    if step.kind == "item":
        return name == name_item(step.field, step.text)
    # of a removed field in a moved item the pointer has the old index and the key path the new one
    return unescape(place) == step.text or (name[:1] != "[" and unescape(name) == step.text)


def find(path: str | Path, document: Json) -> Iterator[tuple[str, Json]]:
    """The pointer and the value of all that the path means in a snapshot, in document order.

    Nothing, one, or, where the path has a `*` or a key that two items share, many.
    """
    steps = parse(path) if isinstance(path, str) else path
    return _values(document, steps)


def _values(value: Maybe, steps: Path, pointer: str = "") -> Iterator[tuple[str, Json]]:
    if value is MISSING:
        return
    if not steps:
        yield pointer, value
        return
    step, rest = steps[0], steps[1:]
    for key, inner in _inside(value, step):
        yield from _values(inner, rest, f"{pointer}/{escape(key)}")


def _inside(value: Json, step: Segment) -> Iterator[tuple[str, Json]]:
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
