"""JSON text to Python values and back without losing a digit of any number.

Owns how a number is held: whole numbers as int (as Decimal when longer than the interpreter
turns into int), all others as Decimal, never as float.
"""

import json
from decimal import Decimal, InvalidOperation
from typing import NoReturn, TypeAlias, cast

import msgspec

Json: TypeAlias = "bool | int | Decimal | str | list[Json] | dict[str, Json] | None"

# Python refuses to turn longer text into int, and back, because it takes quadratic time.
_INT_DIGITS = 4300

_decoder = msgspec.json.Decoder(float_hook=Decimal)
_encoder = msgspec.json.Encoder(decimal_format="number")


def loads(text: bytes | str) -> Json:
    """The value of a JSON text, numbers exact; of a key given twice the last one counts.

    Numbers keep their digits (`1.00` stays `1.00`); only the notation of an exponent may change
    (`1e2` comes out of `dumps` as `1E+2`). Raises ValueError on what is not JSON, including NaN,
    lone surrogates, nesting beyond the interpreter's recursion limit and exponents beyond
    Decimal's.
    """
    try:
        return cast(Json, _decoder.decode(text))
    except msgspec.ValidationError:
        return _with_long_integers(text)
    except RecursionError as error:
        raise ValueError("JSON is nested too deep") from error
    except InvalidOperation as error:
        raise ValueError("JSON has a number with an impossible exponent") from error


def dumps(value: Json) -> bytes:
    """Compact UTF-8 JSON of a value as `loads` makes it; keys stay in their order."""
    return _encoder.encode(value)


def _with_long_integers(text: bytes | str) -> Json:
    # msgspec follows the interpreter's limit, so this rare document takes the slow way.
    try:
        value = cast(
            Json,
            json.loads(
                text, parse_float=Decimal, parse_int=_integer, parse_constant=_refuse_constant
            ),
        )
    except RecursionError as error:
        raise ValueError("JSON is nested too deep") from error
    except InvalidOperation as error:
        raise ValueError("JSON has a number with an impossible exponent") from error
    dumps(value)  # json lets lone surrogates pass, dumps raises ValueError on them
    return value


def _integer(digits: str) -> int | Decimal:
    return int(digits) if len(digits.lstrip("-")) <= _INT_DIGITS else Decimal(digits)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"JSON has no {name}")
