"""JSON text to Python values and back, every digit kept. A whole number is an int (a Decimal beyond
the interpreter's limit), every other one a Decimal. What is nested too deep stays text."""

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

# Python refuses to convert longer text to int and back, because that takes quadratic time.
_INT_DIGITS = 4300


class Numeral(Decimal):
    """A number that Decimal would write differently, as 0.0000001 or 1e2; str() is the input."""

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


def _number(text: str) -> Decimal:
    if "e" in text or "E" in text or text.startswith(_TINY):
        return Numeral(text)
    return Decimal(text)


def _encode_other(value: object) -> msgspec.Raw:
    if type(value) is Numeral:
        return msgspec.Raw(str(value).encode())
    raise TypeError(f"not a JSON value: {type(value).__name__}")


# Decimal writes these with an exponent.
_TINY = ("0.00000", "-0.00000")

_Parts: TypeAlias = dict[str, msgspec.Raw]
_decoder = msgspec.json.Decoder(float_hook=_number)
_by_key = msgspec.json.Decoder(_Parts)
_encoder = msgspec.json.Encoder(decimal_format="number", enc_hook=_encode_other)
_canonical = msgspec.json.Encoder(
    decimal_format="number", enc_hook=_encode_other, order="deterministic"
)


def loads(text: bytes | str) -> Json:
    """The value of a JSON text, numbers exact: `dumps` writes them as in the text (but -0 as 0). Of
    a repeated key the last counts. Raises ValueError for what is not JSON, including NaN, lone
    surrogates, nesting beyond the recursion limit and exponents beyond Decimal's."""
    try:
        return cast(Json, _decoder.decode(text))
    except msgspec.ValidationError:
        return _with_long_integers(text)
    except RecursionError as error:
        raise ValueError("JSON is nested too deep") from error
    except InvalidOperation as error:
        raise ValueError("JSON has a number with an impossible exponent") from error


# Compact UTF-8 JSON of a value that `loads` returned; keys keep their order.
dumps: Callable[[object], bytes] = _encoder.encode
# The same, with the keys of every object sorted.
canonical: Callable[[object], bytes] = _canonical.encode


def _with_long_integers(text: bytes | str) -> Json:
    # msgspec applies the interpreter's limit, so these rare documents need the slower module.
    try:
        value = cast(
            Json,
            json.loads(
                text, parse_float=_number, parse_int=_integer, parse_constant=_refuse_constant
            ),
        )
    except RecursionError as error:
        raise ValueError("JSON is nested too deep") from error
    except InvalidOperation as error:
        raise ValueError("JSON has a number with an impossible exponent") from error
    dumps(value)  # json accepts lone surrogates; dumps raises ValueError for them
    return value


def _integer(digits: str) -> int | Decimal:
    return int(digits) if len(digits.lstrip("-")) <= _INT_DIGITS else Decimal(digits)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"JSON has no {name}")


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
    """The value of a well-formed JSON text, numbers exact. An object or list inside DEEPEST others
    becomes a msgspec.Raw, which `opened` reads. Raises ValueError as exactjson.loads does."""
    return _Cut().value(text) if is_deeper(text, DEEPEST) else loads(text)


class Alike:
    """Reads texts that are compared with one another, each once. Where two have the same text under
    a key, both get the same object there: a comparison need not look into it. whole: reads what is
    no object, is nested too deep, or has a number that Python cannot hold."""

    MOST = 4 * 1024 * 1024  # bytes of texts in memory; beyond these, of two that are compared

    def __init__(self, whole: Callable[[bytes], Json]) -> None:
        self._whole = whole
        self._read: dict[bytes, tuple[Json, _Parts]] = {}
        self._size = 0

    def both(self, old: bytes, new: bytes) -> tuple[Json, Json]:
        return self.value(old, new), self.value(new, old)

    def value(self, text: bytes, other: bytes = b"") -> Json:
        """other: the text that it is compared with."""
        if text not in self._read:
            self._size += len(text)
            if self._size > self.MOST:
                self._read = {other: self._read[other]} if other in self._read else {}
                self._size = len(text) + sum(map(len, self._read))
            self._read[text] = self._like(text, *self._read.get(other, (None, {})))
        return self._read[text][0]

    def _like(self, text: bytes, values: Any, known: _Parts) -> tuple[Json, _Parts]:
        if not is_deeper(text, DEEPEST):
            with suppress(ValueError):
                parts = _by_key.decode(text)
                if not known:
                    return loads(text), parts
                return {
                    key: values[key] if known.get(key) == part else loads(bytes(part))
                    for key, part in parts.items()
                }, parts
        return self._whole(text), {}


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
    """Whether more than this many objects and lists of a well-formed JSON text are nested."""
    if len(text) - len(text.translate(None, b"{[")) <= levels:
        return False
    left = _STRINGS.sub(b"", text).translate(_SQUARE, _NO_BRACKETS)
    passes = min(levels, _PASSES)
    for _ in range(passes):
        left = left.replace(b"[]", b"")
    return max(accumulate(map(_STEP.__getitem__, left)), default=0) > levels - passes


def indented(text: bytes) -> str:
    """A well-formed JSON text with two spaces a level."""
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
