"""Compares the JSON that commands print with its shape in docs/schema/commands.json.

Shapes have kinds of values in words, with " or null" where it may be missing; a list of one kind
has any number of items, and {"one of": [...]} is one of several shapes.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from functools import cache
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[1] / "docs" / "schema" / "commands.json"


@cache
def shapes() -> dict[str, Any]:
    """By command, action and option: `ledger`, `partitions list`, `quarantine list --ids`."""
    found: dict[str, Any] = json.loads(EXAMPLES.read_text())
    return found


def _is_time(value: Any) -> bool:
    return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None


def _is_day(value: Any) -> bool:
    return isinstance(value, str) and str(date.fromisoformat(value)) == value


KINDS: Mapping[str, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str),
    "whole number": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "true or false": lambda value: isinstance(value, bool),
    "time": _is_time,
    "day": _is_day,
    "null": lambda value: value is None,
    "anything": lambda _: True,
}


def shaped(words: str, printed: str | bytes) -> Any:
    """The JSON that a command printed, which has the shape that docs/commands.md shows.

    words: the command, its action and option, as shapes() names them.
    """
    [line] = printed.splitlines()
    found = json.loads(line)
    assert list(differences(found, shapes()[words])) == []
    return found


def differences(value: Any, shape: Any, place: str = "$") -> Iterator[str]:
    """Where the value is not of this shape."""
    match shape:
        case str():
            kind = shape.removesuffix(" or null")
            if not (shape != kind and value is None) and not KINDS[kind](value):
                yield f"{place} is {value!r}, not {shape}"
        case {"one of": choices}:
            if all(list(differences(value, each, place)) for each in choices):
                yield f"{place} is {value!r}, which is none of {choices}"
        case list():
            if not isinstance(value, list) or (len(shape) > 1 and len(value) != len(shape)):
                yield f"{place} is {value!r}, not {shape}"
                return
            kinds = shape if len(shape) > 1 else shape * len(value)
            for number, (each, kind) in enumerate(zip(value, kinds, strict=True)):
                yield from differences(each, kind, f"{place}[{number}]")
        case _:
            yield from _of_object(value, shape, place)


def _of_object(value: Any, shape: Mapping[str, Any], place: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{place} is {value!r}, not an object"
        return
    anything = next((kind for name, kind in shape.items() if name.startswith("<")), None)
    if anything is None and value.keys() != shape.keys():
        yield f"{place} has {sorted(value.keys() ^ shape.keys())} only here or in the shape"
        return
    for name, each in value.items():
        yield from differences(each, shape.get(name, anything), f"{place}.{name}")
