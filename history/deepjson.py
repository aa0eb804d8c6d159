"""JSON that is nested too deep to walk by recursion: what lies deeper than DEEPEST stays text."""

from __future__ import annotations

import re
from decimal import Decimal
from itertools import accumulate, zip_longest
from typing import Any, cast

import msgspec

from history.exactjson import Json, loads

# A comparison needs up to four frames of the interpreter's thousand for each level.
DEEPEST = 100

_STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_SQUARE = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"{}[]"))
_STEP = {ord("["): 1, ord("]"): -1}
_PASSES = 16
_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s"\[\]{},:]+', re.DOTALL)

_NUMBER_STARTS = frozenset(bytes([sign]) for sign in b"-0123456789")


def loads_shallow(text: bytes) -> Json:
    """The value of a well-formed JSON text, numbers exact.

    An object or list inside DEEPEST others becomes a msgspec.Raw with its text. It compares and
    encodes as a whole; `opened` reads it. Raises ValueError as exactjson.loads does.
    """
    return _Cut().value(text) if is_deeper(text, DEEPEST) else loads(text)


def opened(value: object) -> object:
    """The value inside a msgspec.Raw, again shallow; any other value as it is."""
    return loads_shallow(bytes(value)) if isinstance(value, msgspec.Raw) else value


def equal_numbers(old: bytes, new: bytes) -> bool:
    """Whether two well-formed JSON texts differ at most in how their numbers are written."""
    both = zip_longest(_TOKENS.findall(old), _TOKENS.findall(new), fillvalue=b"")
    return all(
        was == now
        or (
            was[:1] in _NUMBER_STARTS
            and now[:1] in _NUMBER_STARTS
            and Decimal(was.decode()) == Decimal(now.decode())
        )
        for was, now in both
    )


def is_deeper(text: bytes, levels: int) -> bool:
    """Whether more than this many objects and lists of a well-formed JSON text are nested.

    Each pass removes the innermost brackets, all at once: of a usual text few passes leave
    nothing. What is left then is counted bracket by bracket, because a pass for each level would
    take seconds for a megabyte of brackets.
    """
    if len(text) - len(text.translate(None, b"{[")) <= levels:
        return False
    left = _STRINGS.sub(b"", text).translate(_SQUARE, _NO_BRACKETS)
    passes = min(levels, _PASSES)
    for _ in range(passes):
        left = left.replace(b"[]", b"")
    return max(accumulate(map(_STEP.__getitem__, left)), default=0) > levels - passes


def indented(text: bytes) -> str:
    """A well-formed JSON text with two spaces a level; what is nested deeper than DEEPEST stays on
    one line. Every number keeps its digits."""
    if not is_deeper(text, DEEPEST):
        return msgspec.json.format(text, indent=2).decode()
    parts: list[bytes] = []
    level, start, last = 0, 0, b""
    for match in _TOKENS.finditer(text):
        token = match[0]
        if token in (b"[", b"{"):
            level += 1
            if level == DEEPEST + 1:
                start = match.start()
            elif level <= DEEPEST:
                parts += [token, _line(level)]
        elif token in (b"]", b"}"):
            level -= 1
            if level == DEEPEST:
                parts.append(text[start : match.end()])
            elif level < DEEPEST and last in (b"[", b"{"):
                parts[-1] = token
            elif level < DEEPEST:
                parts += [_line(level), token]
        elif level <= DEEPEST:
            parts += [token, _line(level) if token == b"," else b" " if token == b":" else b""]
        last = token
    return b"".join(parts).decode()


def _line(level: int) -> bytes:
    return b"\n" + b"  " * level


class _Cut:
    """Builds the value of one text without recursion."""

    def __init__(self) -> None:
        self._open: list[Any] = []  # the containers around the current token, outermost first
        self._keys: list[str] = []  # for each open object the key whose value comes next
        self._whole: Any = None

    def value(self, text: bytes) -> Json:
        level, start, is_key = 0, 0, False
        for match in _TOKENS.finditer(text):
            token = match[0]
            if token in (b"[", b"{"):
                level += 1
                if level == DEEPEST + 1:
                    start = match.start()
                elif level <= DEEPEST:
                    self._enter([] if token == b"[" else {})
                    is_key = token == b"{"
            elif token in (b"]", b"}"):
                level -= 1
                if level == DEEPEST:
                    self._put(msgspec.Raw(text[start : match.end()]))
                elif level < DEEPEST:
                    self._leave()
            elif level > DEEPEST or token == b":":
                continue
            elif token == b",":
                is_key = type(self._open[-1]) is dict
            elif is_key:
                self._keys[-1] = cast(str, loads(token))
                is_key = False
            else:
                self._put(loads(token))
        return cast(Json, self._whole)

    def _enter(self, container: Any) -> None:
        self._put(container)
        self._open.append(container)
        self._keys.append("")

    def _leave(self) -> None:
        self._open.pop()
        self._keys.pop()

    def _put(self, value: Any) -> None:
        if not self._open:
            self._whole = value
        elif type(self._open[-1]) is dict:
            self._open[-1][self._keys[-1]] = value
        else:
            self._open[-1].append(value)
