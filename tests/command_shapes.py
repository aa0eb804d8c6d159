"""Compares the JSON output of commands with its shape in docs/schema/commands.json.

A shape names kinds of values in words, with " or null" where the value can be missing. A list with
one kind has any number of items, and {"one of": [...]} is one of several shapes.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from functools import cache
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[1] / "docs" / "schema" / "commands.json"


@cache
def load_shapes() -> dict[str, Any]:
    """Return the shape of the JSON output of each command, as docs/schema/commands.json has it.

    A key of the result is a command with its action and option, such as `quarantine list --ids`.
    """
    loaded: dict[str, Any] = json.loads(EXAMPLES.read_text())
    return loaded


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


def parse_shaped(command: str, printed: str | bytes) -> Any:
    """Return the parsed JSON output of a command. Fail if the output differs from its shape.

    Args:
        command: The key of the shape: a command with its action and option.
        printed: The output of the command, one line.
    """
    [line] = printed.splitlines()
    parsed = json.loads(line)
    assert list(find_differences(parsed, load_shapes()[command])) == []
    return parsed


def find_differences(value: Any, shape: Any, place: str = "$") -> Iterator[str]:
    """Yield a sentence for each difference between a value and its shape."""
    match shape:
        case str():
            kind = shape.removesuffix(" or null")
            if not (shape != kind and value is None) and not KINDS[kind](value):
                yield f"{place} is {value!r}, not {shape}"
        case {"one of": choices}:
            if all(list(find_differences(value, choice, place)) for choice in choices):
                yield f"{place} is {value!r}, which is none of {choices}"
        case list():
            if not isinstance(value, list) or (len(shape) > 1 and len(value) != len(shape)):
                yield f"{place} is {value!r}, not {shape}"
                return
            kinds = shape if len(shape) > 1 else shape * len(value)
            for number, (item, kind) in enumerate(zip(value, kinds, strict=True)):
                yield from find_differences(item, kind, f"{place}[{number}]")
        case _:
            yield from _find_object_differences(value, shape, place)


def _find_object_differences(value: Any, shape: Mapping[str, Any], place: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{place} is {value!r}, not an object"
        return
    any_shape = next((kind for name, kind in shape.items() if name.startswith("<")), None)
    if any_shape is None and value.keys() != shape.keys():
        yield f"{place} has {sorted(value.keys() ^ shape.keys())} only here or in the shape"
        return
    for name, member in value.items():
        yield from find_differences(member, shape.get(name, any_shape), f"{place}.{name}")
