"""JSON values as the oracle holds them: exact numbers, what a path selects, how a patch applies."""

import json
from decimal import Decimal
from itertools import zip_longest
from typing import Any, NamedTuple

Value = Any


class ExactNumber:
    """A number with the text it was written as. Equal to every number of the same value."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.value = Decimal(text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExactNumber) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return self.text


class AbsentValue:
    """Not there, which null is not."""

    def __repr__(self) -> str:
        return "absent"


ABSENT = AbsentValue()


def read(text: str | bytes) -> Value:
    """JSON text as values that == compares as JSON: 1 is 1.0, true is not 1."""
    return json.loads(text, parse_int=ExactNumber, parse_float=ExactNumber)


def make_exact(value: Value) -> object:
    """Equal for two values if and only if all numbers have the same digits too."""
    if isinstance(value, dict):
        return {key: make_exact(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [make_exact(inner) for inner in value]
    return ("number", value.text) if isinstance(value, ExactNumber) else value


class PathStep(NamedTuple):
    """One step of a path: `key` (also an index), `item` by a field, or `any`."""

    kind: str
    text: str = ""
    field: str = ""

    @property
    def format_step(self) -> str:
        if self.kind == "any":
            return "*"
        if self.kind == "item":
            return f"[{_escape(self.field).replace('=', '~3')}={_escape(self.text)}]"
        text = _escape(self.text)
        if text == "*":
            return "~4"
        return f"~2{text[1:]}" if text.startswith("[") else text


Path = tuple[PathStep, ...]


def format_path(path: Path) -> str:
    return "".join(f"/{step.format_step}" for step in path)


def _escape(text: str) -> str:
    return text.replace("~", "~0").replace("/", "~1")


def _unescape(text: str) -> str:
    for code, sign in (("~1", "/"), ("~2", "["), ("~3", "="), ("~4", "*"), ("~0", "~")):
        text = text.replace(code, sign)
    return text


def parse_path(path: str) -> Path:
    """The steps of a pointer or key path that the API gave."""
    steps = []
    for segment in path.split("/")[1:]:
        if segment.startswith("["):
            field, _, value = segment[1:-1].partition("=")
            steps.append(PathStep("item", _unescape(value), _unescape(field)))
        elif segment == "*":
            steps.append(PathStep("any"))
        else:
            steps.append(PathStep("key", _unescape(segment)))
    return tuple(steps)


def find_at_pointer(pointer: str, document: Value) -> Value:
    """The value at an RFC 6901 pointer, ABSENT if there is none."""
    for segment in pointer.split("/")[1:]:
        key = segment.replace("~1", "/").replace("~0", "~")
        if isinstance(document, dict) and key in document:
            document = document[key]
        elif isinstance(document, list) and key.isdecimal() and int(key) < len(document):
            document = document[int(key)]
        else:
            return ABSENT
    return document


def get_item_key(item: Value, field: str) -> str | None:
    """The key that an item has in a field: text, or a whole number."""
    value = item.get(field) if isinstance(item, dict) else None
    if isinstance(value, ExactNumber):
        return value.text if value.text.lstrip("-").isdecimal() else None
    return value if isinstance(value, str) else None


def select(path: Path, document: Value) -> list[Value]:
    """All that a path selects, in document order."""
    values = [] if document is ABSENT else [document]
    for step in path:
        values = [inner for value in values for inner in _inside(step, value)]
    return values


def _inside(step: PathStep, value: Value) -> list[Value]:
    if step.kind == "any":
        return (
            list(value.values() if isinstance(value, dict) else value)[:]
            if value and isinstance(value, dict | list)
            else []
        )
    if step.kind == "item":
        items = value if isinstance(value, list) else []
        return [item for item in items if get_item_key(item, step.field) == step.text]
    if isinstance(value, dict):
        return [value[step.text]] if step.text in value else []
    if isinstance(value, list) and step.text.isdecimal() and str(int(step.text)) == step.text:
        return value[int(step.text) : int(step.text) + 1]
    return []


def is_different(path: Path, old: Value, new: Value) -> bool:
    """Whether what a path without `*` selects differs; several items of one key in their order."""
    if not path:
        return old is not new if ABSENT in (old, new) else old != new
    before = [] if old is ABSENT else _inside(path[0], old)
    after = [] if new is ABSENT else _inside(path[0], new)
    return any(
        is_different(path[1:], was, now)
        for was, now in zip_longest(before, after, fillvalue=ABSENT)
    )


def apply_patch(document: Value, operations: list[dict[str, Any]]) -> Value:
    """The document after RFC 6902 operations."""
    whole = {"": _copy(document)}
    for operation in operations:
        kind, path = operation["op"], operation["path"]
        if kind == "move":
            value = _take(whole, operation["from"])
            _add(whole, path, value)
        elif kind == "add":
            _add(whole, path, _copy(operation["value"]))
        elif kind == "remove":
            _take(whole, path)
        else:
            assert kind == "replace", kind
            holder, key = _holder(whole, path)
            holder[key]
            holder[key] = _copy(operation["value"])
    return whole[""]


def _copy(value: Value) -> Value:
    if isinstance(value, dict):
        return {key: _copy(inner) for key, inner in value.items()}
    return [_copy(inner) for inner in value] if isinstance(value, list) else value


def _holder(whole: dict[str, Value], path: str) -> tuple[Any, Any]:
    holder: Any = whole
    *segments, last = [
        "",
        *(part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]),
    ]
    for segment in segments:
        holder = holder[int(segment) if isinstance(holder, list) else segment]
    return holder, int(last) if isinstance(holder, list) else last


def _take(whole: dict[str, Value], path: str) -> Value:
    holder, key = _holder(whole, path)
    return holder.pop(key)


def _add(whole: dict[str, Value], path: str, value: Value) -> None:
    holder, key = _holder(whole, path)
    if isinstance(holder, list):
        assert key <= len(holder)
        holder.insert(key, value)
    else:
        holder[key] = value
