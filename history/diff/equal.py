"""Fast exact comparison of JSON values; the walk skips what is identical."""

from decimal import Decimal

from msgspec import Raw

from history import deepjson
from history.diff.change import Maybe
from history.exactjson import Json, Numeral, canonical, dumps

# Python's == is not enough for these types: 1.0 == 1.00, [1] == [True].
COMPARED_AS_TEXT = frozenset((dict, list, Decimal, Numeral))
_NUMBERS = (int, Decimal, Numeral)


def identical(old: Maybe, new: Maybe) -> bool:
    """Whether both have the same JSON text. May be False if only the order of keys differs.

    Python's == finds most differences fast, but says that true is 1 and 1.0 is 1.00. Where it
    says equal, the encoded texts decide.
    """
    if old != new:
        return False
    kind = type(new)
    if type(old) is not kind:
        return bool not in (kind, type(old)) and dumps(old) == dumps(new)
    return kind not in COMPARED_AS_TEXT or dumps(old) == dumps(new)


def equal_numbers(old: "Json | Raw", new: "Json | Raw") -> bool:
    """Whether both are numbers with the same value, as 1, 1.0 and 1.00; true is not a number. Or
    parts nested too deep that differ in nothing else."""
    if type(old) is Raw and type(new) is Raw:
        return deepjson.equal_numbers(bytes(old), bytes(new))
    return type(old) in _NUMBERS and type(new) in _NUMBERS and old == new


def fingerprint(value: Json) -> str | bytes:
    """A hashable form: two values with the same fingerprint are identical."""
    return value if type(value) is str else canonical(value)
