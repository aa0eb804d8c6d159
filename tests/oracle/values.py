"""JSON values with exact numbers, the values that a path selects, and the effect of a patch."""

import json
from decimal import Decimal
from itertools import zip_longest
from typing import Any, NamedTuple

Value = Any


class ExactNumber:
    """A number and its notation. Equal to every number with the same value."""

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
    """The type of ABSENT, which stands for a value that does not exist. It is not null."""

    def __repr__(self) -> str:
        return "absent"


ABSENT = AbsentValue()


def parse_json(text: str | bytes) -> Value:
    """Return values that == compares as JSON does: 1 equals 1.0, and true does not equal 1."""
    return json.loads(text, parse_int=ExactNumber, parse_float=ExactNumber)


def make_exact(value: Value) -> object:
    """Convert a value so that numbers are equal only if written alike: 1 and 1.0 differ."""
    if isinstance(value, dict):
        return {key: make_exact(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [make_exact(inner) for inner in value]
    return ("number", value.text) if isinstance(value, ExactNumber) else value


class PathStep(NamedTuple):
    """One step of a path to a value in a snapshot."""

    kind: str  # `key` for a key or an index, `item` for an item named by a field, or `any`
    text: str = ""
    field: str = ""

    @property
    def segment(self) -> str:
        """The step as a part of a path of the API: a key, an index, `*`, or `[field=value]`."""
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
    return "".join(f"/{step.segment}" for step in path)


def _escape(text: str) -> str:
    return text.replace("~", "~0").replace("/", "~1")


def _unescape(text: str) -> str:
    for code, sign in (("~1", "/"), ("~2", "["), ("~3", "="), ("~4", "*"), ("~0", "~")):
        text = text.replace(code, sign)
    return text


def parse_path(path: str) -> Path:
    """Return the steps of a pointer or of a key path."""
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
    """Return the value at an RFC 6901 pointer, or ABSENT."""
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
    """Return the value of `field` in a list item, or None if this value cannot be a key.

    A key is a text or a whole number.
    """
    value = item.get(field) if isinstance(item, dict) else None
    if isinstance(value, ExactNumber):
        return value.text if value.text.lstrip("-").isdecimal() else None
    return value if isinstance(value, str) else None


def select(path: Path, document: Value) -> list[Value]:
    """Return all values that a path selects, in document order."""
    values = [] if document is ABSENT else [document]
    for step in path:
        values = [inner for value in values for inner in _select_step(step, value)]
    return values


def _select_step(step: PathStep, value: Value) -> list[Value]:
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
    """Return whether the values that a path selects differ. The path has no `*`.

    If several list items have the same key, these items are compared in their order.
    """
    if not path:
        return old is not new if ABSENT in (old, new) else old != new
    before = [] if old is ABSENT else _select_step(path[0], old)
    after = [] if new is ABSENT else _select_step(path[0], new)
    return any(
        is_different(path[1:], was, now)
        for was, now in zip_longest(before, after, fillvalue=ABSENT)
    )


def apply_patch(document: Value, operations: list[dict[str, Any]]) -> Value:
    """Return the document after these RFC 6902 operations."""
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
            holder, key = _find_holder(whole, path)
            holder[key]
            holder[key] = _copy(operation["value"])
    return whole[""]


def _copy(value: Value) -> Value:
    if isinstance(value, dict):
        return {key: _copy(inner) for key, inner in value.items()}
    return [_copy(inner) for inner in value] if isinstance(value, list) else value


def _find_holder(whole: dict[str, Value], path: str) -> tuple[Any, Any]:
    holder: Any = whole
    *segments, last = [
        "",
        *(part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]),
    ]
    for segment in segments:
        holder = holder[int(segment) if isinstance(holder, list) else segment]
    return holder, int(last) if isinstance(holder, list) else last


def _take(whole: dict[str, Value], path: str) -> Value:
    holder, key = _find_holder(whole, path)
    return holder.pop(key)


def _add(whole: dict[str, Value], path: str, value: Value) -> None:
    holder, key = _find_holder(whole, path)
    if isinstance(holder, list):
        assert key <= len(holder)
        holder.insert(key, value)
    else:
        holder[key] = value
