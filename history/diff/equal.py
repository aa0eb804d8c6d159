"""Sameness to the digit, cheap; what the walk skips, it skips on this."""

from decimal import Decimal

from history.diff.change import Maybe
from history.exactjson import Json, Numeral, canonical, dumps

# Equal in Python does not mean the same here: 1.0 and 1.00, [1] and [true].
CAREFUL = frozenset((dict, list, Decimal, Numeral))
_NUMBERS = (int, Decimal, Numeral)


def same(old: Maybe, new: Maybe) -> bool:
    """Whether both are the same JSON text; False may also mean another order of object keys.

    Python's == rejects unequal parts early and at C speed, but takes true for 1 and 1.0 for 1.00:
    where it says yes, the encoded texts decide.
    """
    if old != new:
        return False
    kind = type(new)
    if type(old) is not kind:
        return bool not in (kind, type(old)) and dumps(old) == dumps(new)
    return kind not in CAREFUL or dumps(old) == dumps(new)


def equal_numbers(old: Json, new: Json) -> bool:
    """Whether both are numbers of the same value, as 1, 1.0 and 1.00 are; true is no number."""
    return type(old) in _NUMBERS and type(new) in _NUMBERS and old == new


def token(value: Json) -> str | bytes:
    """A hashable stand-in: two values have the same token only if they are the same."""
    return value if type(value) is str else canonical(value)
