"""Pairs removed and added items of a list without keys that are probably the same item, by
DeepDiff's distance: a third of a millisecond each, so only for few (docs/decisions/0011)."""

from typing import Any

from history.documents.exactjson import Json, dumps

Pairs = list[tuple[int, int]]

# Pairs of objects that DeepDiff compares at most: 12 take 5 ms, 72 take 23 ms.
_MOST_PAIRS = 12
_MOST_BYTES = 4096
# Objects at a greater distance than this are different items.
_DISTANCE = 0.6
# What is nested deeper counts as one text: at 90 levels DeepDiff takes three seconds.
_LEVELS = 8
_ALONE = ("iterable_item_added", "iterable_item_removed")


class Similarity:
    """Pairs items. One comparison of two snapshots gives DeepDiff at most _MOST_PAIRS pairs."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = _MOST_PAIRS

    def pair(self, left: list[Json], came: list[Json]) -> Pairs:
        """Indexes of removed and added items that are one changed item; each index at most once."""
        product = len(left) * len(came)
        if (
            1 < product <= self._left
            and all(type(item) is dict for item in (*left, *came))
            and len(dumps(left)) + len(dumps(came)) <= _MOST_BYTES
        ):
            self._left -= product
            return _by_distance(left, came)
        return [(index, index) for index in range(min(len(left), len(came)))]


def _by_distance(left: list[Json], came: list[Json]) -> Pairs:
    from deepdiff import DeepDiff  # the import takes a third of a second; few need it

    # Only texts: to DeepDiff true is close to 1, and it has no numbers beyond float.
    found = DeepDiff(
        [_texts(item) for item in left],
        [_texts(item) for item in came],
        ignore_order=True,
        ignore_private_variables=False,  # otherwise keys that begin with __ are omitted
        view="tree",
        cutoff_distance_for_pairs=_DISTANCE,
        cutoff_intersection_for_pairs=1,
    )
    pairs: dict[int, int] = {}
    for report, levels in found.items():
        for level in levels:
            if report in _ALONE and level.up.up is None:
                continue  # the whole item was added or removed
            origin = level.path(output_format="list")[0]
            target = level.path(output_format="list", use_t2=True)[0]
            if origin not in pairs and target not in pairs.values():
                pairs[origin] = target
    return list(pairs.items())


def _texts(value: Json, levels: int = _LEVELS) -> Any:
    if levels and type(value) is dict:
        return {key: _texts(inner, levels - 1) for key, inner in value.items()}
    if levels and type(value) is list:
        return [_texts(inner, levels - 1) for inner in value]
    return dumps(value).decode()
