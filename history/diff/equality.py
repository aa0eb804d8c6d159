"""Compares JSON values exactly and fast, so that the diff can skip identical parts of snapshots."""

from decimal import Decimal

from msgspec import Raw

from history.diff.change import MISSING, MaybeJson
from history.documents import exactjson
from history.documents.exactjson import Json, Numeral, dump_canonically, dumps

# Types for which Python's == is too lax: 1.0 == 1.00, [1] == [True].
COMPARED_AS_TEXT = frozenset((dict, list, Decimal, Numeral))
_NUMBERS = (int, Decimal, Numeral)


def is_identical(old: MaybeJson, new: MaybeJson) -> bool:
    """Return whether both values have the same JSON text: true is not 1, and 1.0 is not 1.00.

    The result can be False although only the order of keys differs.
    """
    if old != new:
        return False
    kind = type(new)
    if type(old) is not kind:
        return bool not in (kind, type(old)) and dumps(old) == dumps(new)
    return kind not in COMPARED_AS_TEXT or dumps(old) == dumps(new)


def is_equal_number(old: "Json | Raw", new: "Json | Raw") -> bool:
    """Return whether both values are numbers and equal, such as 1 and 1.00.

    Booleans do not count as numbers. Two msgspec.Raw (objects or lists that are nested too deep)
    count as equal numbers if their texts are equal except for the notation of numbers.
    """
    if type(old) is Raw and type(new) is Raw:
        return exactjson.has_equal_numbers(bytes(old), bytes(new))
    return type(old) in _NUMBERS and type(new) in _NUMBERS and old == new


def make_fingerprint(value: Json) -> str | bytes:
    """Return a hashable value that is the same only for identical values."""
    return value if type(value) is str else dump_canonically(value)


# A key of an object, its old value and its new value.
ChangedKey = tuple[str, MaybeJson, MaybeJson]


def find_changed_keys(
    old: dict[str, Json], new: dict[str, Json], prune: bool
) -> tuple[list[ChangedKey], bool]:
    """Find the keys of `new` that were added or changed.

    Args:
        prune: Whether to leave out objects and lists with equal JSON texts in `old` and `new`. If
            False, an object or list is left out only if it is the same Python object in both.

    Returns:
        The changed keys with their values, and whether `new` has every key of `old`.
    """
    changed: list[ChangedKey] = []
    # values that are equal to Python: at the end one call compares all of their texts
    old_values: list[MaybeJson] = []
    new_values: list[MaybeJson] = []
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
                old_values.append(before)
                new_values.append(after)
                continue
        if before is MISSING:
            added += 1
        changed.append((key, before, after))
    if old_values and dumps(old_values) != dumps(new_values):
        changed = [
            (key, before, after)
            for key, after in new.items()
            if (before := get(key, MISSING)) is MISSING or not is_identical(before, after)
        ]
    return changed, len(new) - added == len(old)


def insert_removed_keys(
    old: dict[str, Json], new: dict[str, Json], changed: list[ChangedKey]
) -> list[ChangedKey]:
    """Return `changed` with the removed keys inserted.

    A removed key is inserted after the key that precedes it in `old`. If `new` does not have the
    preceding key, the next key further back in `old` counts.
    """
    rank = {key: index for index, key in enumerate(new)}
    ranked = [(rank[entry[0]], 0, entry) for entry in changed]
    behind = -1
    for order, (key, before) in enumerate(old.items(), 1):
        if key in rank:
            behind = rank[key]
        else:
            ranked.append((behind, order, (key, before, MISSING)))
    ranked.sort(key=_get_rank)
    return [entry for _, _, entry in ranked]


def _get_rank(ranked: tuple[int, int, ChangedKey]) -> tuple[int, int]:
    return ranked[0], ranked[1]
