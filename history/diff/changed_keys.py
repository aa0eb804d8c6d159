"""Finds the keys of an object whose values differ. Most comparisons spend most time here."""

from history.diff.change import MISSING, Maybe
from history.diff.equal import COMPARED_AS_TEXT, identical
from history.exactjson import Json, dumps

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
