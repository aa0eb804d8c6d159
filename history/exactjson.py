"""Converts JSON text to Python values and back; keeps every digit of every number.

A whole number is an int (a Decimal if it is longer than the interpreter's limit for int), every
other number is a Decimal. There are no floats.
"""

import json
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import NoReturn, TypeAlias, cast

import msgspec

Json: TypeAlias = "bool | int | Decimal | str | list[Json] | dict[str, Json] | None"

# Python refuses to convert longer text to int and back, because that takes quadratic time.
_INT_DIGITS = 4300


class Numeral(Decimal):
    """A number that Decimal would write differently, as 0.0000001 or 1e2; str() is the input."""

    __slots__ = ("_text",)
    _text: str

    def __new__(cls, text: str) -> "Numeral":
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

_decoder = msgspec.json.Decoder(float_hook=_number)
_encoder = msgspec.json.Encoder(decimal_format="number", enc_hook=_encode_other)
_canonical = msgspec.json.Encoder(
    decimal_format="number", enc_hook=_encode_other, order="deterministic"
)


def loads(text: bytes | str) -> Json:
    """The value of a JSON text, numbers exact. If a key occurs twice, the last one counts.

    `dumps` of the result writes every number as in the text (but -0 as 0). Raises ValueError for
    text that is not JSON, including NaN, lone surrogates, nesting beyond the interpreter's
    recursion limit and exponents beyond Decimal's.
    """
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
