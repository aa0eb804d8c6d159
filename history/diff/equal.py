"""Fast exact comparison of JSON values; the walk skips what is identical."""

from decimal import Decimal

from msgspec import Raw

from history.diff.change import MISSING, Maybe
from history.documents import exactjson
from history.documents.exactjson import Json, Numeral, canonical, dumps

# Python's == is not enough for these types: 1.0 == 1.00, [1] == [True].
COMPARED_AS_TEXT = frozenset((dict, list, Decimal, Numeral))
_NUMBERS = (int, Decimal, Numeral)


def identical(old: Maybe, new: Maybe) -> bool:
    """Whether both have the same JSON text, also where Python's == takes true as 1 and 1.0 as 1.00.
    May be False if only the order of keys differs."""
    if old != new:
        return False
    kind = type(new)
    if type(old) is not kind:
        return bool not in (kind, type(old)) and dumps(old) == dumps(new)
    return kind not in COMPARED_AS_TEXT or dumps(old) == dumps(new)


def equal_numbers(old: "Json | Raw", new: "Json | Raw") -> bool:
    """Whether both are numbers with the same value, as 1, 1.0 and 1.00; true is not a number."""
    if type(old) is Raw and type(new) is Raw:
        return exactjson.equal_numbers(bytes(old), bytes(new))
    return type(old) in _NUMBERS and type(new) in _NUMBERS and old == new


def fingerprint(value: Json) -> str | bytes:
    """A hashable form: two values with the same fingerprint are identical."""
    return value if type(value) is str else canonical(value)


# An object's key with its old and its new value.
ChangedKey = tuple[str, Maybe, Maybe]


def changed_keys(
    old: dict[str, Json], new: dict[str, Json], prune: bool
) -> tuple[list[ChangedKey], bool]:
    """The keys of new that are added or not identical; whether new has every key of old."""
    changed: list[ChangedKey] = []
    was: list[Maybe] = []  # equal to Python; their texts are compared at the end, all in one call
    now: list[Maybe] = []
    added = 0
    get = old.get
    for key, after in new.items():
        if (before := get(key, MISSING)) is after:
            continue
        if (kind := type(after)) is str:
            if before == after:
                continue
        elif before == after and type(before) is kind:
            if kind not in COMPARED_AS_TEXT:
                continue
            if prune:
                was.append(before)
                now.append(after)
                continue
        if before is MISSING:
            added += 1
        changed.append((key, before, after))
    if was and dumps(was) != dumps(now):
        changed = [
            (key, before, after)
            for key, after in new.items()
            if (before := get(key, MISSING)) is MISSING or not identical(before, after)
        ]
    return changed, len(new) - added == len(old)


def with_removed(
    old: dict[str, Json], new: dict[str, Json], changed: list[ChangedKey]
) -> list[ChangedKey]:
    """Inserts the removed keys at their old position: after the key that preceded them."""
    rank = {key: index for index, key in enumerate(new)}
    ranked = [(rank[entry[0]], 0, entry) for entry in changed]
    behind = -1
    for order, (key, before) in enumerate(old.items(), 1):
        if key in rank:
            behind = rank[key]
        else:
            ranked.append((behind, order, (key, before, MISSING)))
    ranked.sort(key=_place)
    return [entry for _, _, entry in ranked]


def _place(ranked: tuple[int, int, ChangedKey]) -> tuple[int, int]:
    return ranked[0], ranked[1]
