"""Converts JSON text to Python values and back without losing a digit.

A whole number becomes an int, or a Decimal if it has more digits than the interpreter converts.
Every other number becomes a Decimal. Parts that are nested too deep stay text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from itertools import accumulate, zip_longest
from typing import Any, NoReturn, TypeAlias, cast

import msgspec

Json: TypeAlias = "bool | int | Decimal | str | list[Json] | dict[str, Json] | None"

# Python refuses to convert longer texts to int and back, because that takes quadratic time.
_INT_DIGITS = 4300


class Numeral(Decimal):
    """A number, such as 1e2, that Decimal would write in a different form than the JSON text has.

    A Numeral is written as the text from which it was read.
    """

    __slots__ = ("_text",)
    _text: str

    def __new__(cls, text: str) -> Numeral:
        number = super().__new__(cls, text)
        number._text = text
        return number

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Numeral('{self._text}')"


def _parse_number(text: str) -> Decimal:
    if "e" in text or "E" in text or text.startswith(_TINY):
        return Numeral(text)
    return Decimal(text)


def _encode_other(value: object) -> msgspec.Raw:
    if type(value) is Numeral:
        return msgspec.Raw(str(value).encode())
    raise TypeError(f"not a JSON value: {type(value).__name__}")


# Decimal writes numbers that begin like this with an exponent.
_TINY = ("0.00000", "-0.00000")

_RawMembers: TypeAlias = dict[str, msgspec.Raw]
_decoder = msgspec.json.Decoder(float_hook=_parse_number)
_decode_members = msgspec.json.Decoder(_RawMembers)
_encoder = msgspec.json.Encoder(decimal_format="number", enc_hook=_encode_other)
_canonical_encoder = msgspec.json.Encoder(
    decimal_format="number", enc_hook=_encode_other, order="deterministic"
)


def loads(text: bytes | str) -> Json:
    """Return the value of a JSON text with exact numbers. If a key is repeated, the last one wins.

    `dumps` writes the numbers as they are in the text, except that -0 becomes 0.

    Raises:
        ValueError: The text is not JSON, or has NaN, lone surrogates, nesting beyond the recursion
            limit, or exponents beyond the limits of Decimal.
    """
    try:
        return cast(Json, _decoder.decode(text))
    except msgspec.ValidationError:
        return _load_with_long_integers(text)
    except RecursionError as error:
        raise ValueError("JSON is nested too deep") from error
    except InvalidOperation as error:
        raise ValueError("JSON has a number with an impossible exponent") from error


# Compact UTF-8 JSON of a value that `loads` returned; keys keep their order.
dumps: Callable[[object], bytes] = _encoder.encode
# Compact UTF-8 JSON with the keys of every object sorted.
dump_canonically: Callable[[object], bytes] = _canonical_encoder.encode


def _load_with_long_integers(text: bytes | str) -> Json:
    # msgspec applies the interpreter's limit, so these rare documents need the slower module.
    try:
        value = cast(
            Json,
            json.loads(
                text,
                parse_float=_parse_number,
                parse_int=_parse_integer,
                parse_constant=_refuse_constant,
            ),
        )
    except RecursionError as error:
        raise ValueError("JSON is nested too deep") from error
    except InvalidOperation as error:
        raise ValueError("JSON has a number with an impossible exponent") from error
    dumps(value)  # json accepts lone surrogates; dumps raises ValueError for them
    return value


def _parse_integer(digits: str) -> int | Decimal:
    return int(digits) if len(digits.lstrip("-")) <= _INT_DIGITS else Decimal(digits)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"JSON has no {name}")


# For each level, a comparison needs up to four of the thousand frames that Python allows.
MAX_PARSED_LEVELS = 100

_STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_SQUARE = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"{}[]"))
_STEP = {ord("["): 1, ord("]"): -1}
# How often `is_deeper` removes the innermost brackets before it counts the levels that are left.
_PASSES = 16
_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s"\[\]{},:]+', re.DOTALL)

_NUMBER_STARTS = frozenset(bytes([sign]) for sign in b"-0123456789")


def loads_shallow(text: bytes) -> Json:
    """Return the value of a well-formed JSON text with exact numbers.

    An object or list that is nested deeper than MAX_PARSED_LEVELS becomes a msgspec.Raw, which
    `open_raw` parses.

    Raises:
        ValueError: See `loads`.
    """
    return _ShallowParser().parse(text) if is_deeper(text, MAX_PARSED_LEVELS) else loads(text)


class SnapshotCache:
    """A cache of parsed snapshots that are compared with one another. Parses each text once.

    If two snapshots have the same text under a top-level key, their values are the same Python
    object. A comparison sees this at once, and does not walk through the value.

    Args:
        parse_whole: Parses a text that is not an object, is nested too deep, or has a number that
            Python cannot hold.
    """

    # The most bytes of texts in memory. Beyond this, only the texts of the current pair are kept.
    MAX_BYTES = 4 * 1024 * 1024

    def __init__(self, parse_whole: Callable[[bytes], Json]) -> None:
        self._parse_whole = parse_whole
        self._parsed: dict[bytes, tuple[Json, _RawMembers]] = {}
        self._size = 0

    def parse_pair(self, old: bytes, new: bytes) -> tuple[Json, Json]:
        return self.parse(old, new), self.parse(new, old)

    def parse(self, text: bytes, compared_with: bytes = b"") -> Json:
        """Return the value of a text.

        Args:
            compared_with: The snapshot with which `text` will be compared. Members that are equal
                in both texts become the same Python objects.
        """
        if text not in self._parsed:
            self._size += len(text)
            if self._size > self.MAX_BYTES:
                self._parsed = (
                    {compared_with: self._parsed[compared_with]}
                    if compared_with in self._parsed
                    else {}
                )
                self._size = len(text) + sum(map(len, self._parsed))
            known = self._parsed.get(compared_with, (None, {}))
            self._parsed[text] = self._parse_like(text, *known)
        return self._parsed[text][0]

    def _parse_like(
        self, text: bytes, values: Any, known_members: _RawMembers
    ) -> tuple[Json, _RawMembers]:
        if not is_deeper(text, MAX_PARSED_LEVELS):
            with suppress(ValueError):
                members = _decode_members.decode(text)
                if not known_members:
                    return loads(text), members
                return {
                    key: values[key] if known_members.get(key) == member else loads(bytes(member))
                    for key, member in members.items()
                }, members
        return self._parse_whole(text), {}


def open_raw(value: object) -> object:
    """Parse a msgspec.Raw with `loads_shallow`. Return any other value unchanged."""
    return loads_shallow(bytes(value)) if isinstance(value, msgspec.Raw) else value


def has_equal_numbers(old: bytes, new: bytes) -> bool:
    """Return whether two well-formed JSON texts are equal except for the notation of numbers."""
    token_pairs = zip_longest(_TOKENS.findall(old), _TOKENS.findall(new), fillvalue=b"")
    return all(
        old_token == new_token
        or (
            old_token[:1] in _NUMBER_STARTS
            and new_token[:1] in _NUMBER_STARTS
            and Decimal(old_token.decode()) == Decimal(new_token.decode())
        )
        for old_token, new_token in token_pairs
    )


def is_deeper(text: bytes, levels: int) -> bool:
    """Return whether a well-formed JSON text nests objects and lists deeper than `levels`."""
    if len(text) - len(text.translate(None, b"{[")) <= levels:
        return False
    brackets = _STRINGS.sub(b"", text).translate(_SQUARE, _NO_BRACKETS)
    passes = min(levels, _PASSES)
    for _ in range(passes):
        brackets = brackets.replace(b"[]", b"")
    return max(accumulate(map(_STEP.__getitem__, brackets)), default=0) > levels - passes


def format_indented(text: bytes) -> str:
    """Return a well-formed JSON text, indented by two spaces for each level.

    A part that is nested deeper than MAX_PARSED_LEVELS stays as it is.
    """
    if not is_deeper(text, MAX_PARSED_LEVELS):
        return msgspec.json.format(text, indent=2).decode()
    parts: list[bytes] = []
    level, start, last = 0, 0, b""
    for match in _TOKENS.finditer(text):
        token = match[0]
        if token in (b"[", b"{"):
            level += 1
            if level == MAX_PARSED_LEVELS + 1:
                start = match.start()
            elif level <= MAX_PARSED_LEVELS:
                parts += [token, _make_line(level)]
        elif token in (b"]", b"}"):
            level -= 1
            if level == MAX_PARSED_LEVELS:
                parts.append(text[start : match.end()])
            elif level < MAX_PARSED_LEVELS and last in (b"[", b"{"):
                parts[-1] = token
            elif level < MAX_PARSED_LEVELS:
                parts += [_make_line(level), token]
        elif level <= MAX_PARSED_LEVELS:
            parts += [token, _make_line(level) if token == b"," else b" " if token == b":" else b""]
        last = token
    return b"".join(parts).decode()


def _make_line(level: int) -> bytes:
    return b"\n" + b"  " * level


class _ShallowParser:
    """A parser of one JSON text that does not recurse. See `loads_shallow`."""

    def __init__(self) -> None:
        self._open: list[Any] = []  # the containers around the current token, outermost first
        self._keys: list[str] = []  # the key whose value comes next, for each open object
        self._result: Any = None

    def parse(self, text: bytes) -> Json:
        level, start, is_key = 0, 0, False
        for match in _TOKENS.finditer(text):
            token = match[0]
            if token in (b"[", b"{"):
                level += 1
                if level == MAX_PARSED_LEVELS + 1:
                    start = match.start()
                elif level <= MAX_PARSED_LEVELS:
                    self._enter([] if token == b"[" else {})
                    is_key = token == b"{"
            elif token in (b"]", b"}"):
                level -= 1
                if level == MAX_PARSED_LEVELS:
                    self._put(msgspec.Raw(text[start : match.end()]))
                elif level < MAX_PARSED_LEVELS:
                    self._leave()
            elif level > MAX_PARSED_LEVELS or token == b":":
                continue
            elif token == b",":
                is_key = type(self._open[-1]) is dict
            elif is_key:
                self._keys[-1] = cast(str, loads(token))
                is_key = False
            else:
                self._put(loads(token))
        return cast(Json, self._result)

    def _enter(self, container: Any) -> None:
        self._put(container)
        self._open.append(container)
        self._keys.append("")

    def _leave(self) -> None:
        self._open.pop()
        self._keys.pop()

    def _put(self, value: Any) -> None:
        if not self._open:
            self._result = value
        elif type(self._open[-1]) is dict:
            self._open[-1][self._keys[-1]] = value
        else:
            self._open[-1].append(value)
