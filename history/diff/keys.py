"""Which keys of an object differ, in one pass; here most comparisons spend most of their time."""

from history.diff.change import MISSING, Maybe
from history.diff.equal import CAREFUL, same
from history.exactjson import Json, dumps

# An object's key with its old and its new value.
Touched = tuple[str, Maybe, Maybe]


def touched_keys(
    old: dict[str, Json], new: dict[str, Json], prune: bool
) -> tuple[list[Touched], bool]:
    """The keys of new that are added or not the same, and whether every key of old was met."""
    touched: list[Touched] = []
    was: list[Maybe] = []  # alike to Python; their texts are compared at the end, all at once
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
            if kind not in CAREFUL:
                continue
            if prune:
                was.append(before)
                now.append(after)
                continue
        if before is MISSING:
            added += 1
        touched.append((key, before, after))
    if was and dumps(was) != dumps(now):
        touched = [
            (key, before, after)
            for key, after in new.items()
            if (before := get(key, MISSING)) is MISSING or not same(before, after)
        ]
    return touched, len(new) - added == len(old)


def with_removed(
    old: dict[str, Json], new: dict[str, Json], touched: list[Touched]
) -> list[Touched]:
    """The removed keys put in where they stood: behind the key that was before them."""
    rank = {key: index for index, key in enumerate(new)}
    ranked = [(rank[entry[0]], 0, entry) for entry in touched]
    behind = -1
    for order, (key, before) in enumerate(old.items(), 1):
        if key in rank:
            behind = rank[key]
        else:
            ranked.append((behind, order, (key, before, MISSING)))
    ranked.sort(key=_place)
    return [entry for _, _, entry in ranked]


def _place(ranked: tuple[int, int, Touched]) -> tuple[int, int]:
    return ranked[0], ranked[1]
