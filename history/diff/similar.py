"""Which removed item of a list without keys became which added one.

DeepDiff decides it, by how far apart two objects are. It takes about a third of a millisecond per
pair of objects it looks at, so it is asked only about a few small ones (docs/decisions/0012).
"""

from typing import Any

from history.exactjson import Json, dumps

Pairs = list[tuple[int, int]]

# Pairs of objects DeepDiff may look at: 3 removed against 4 added ones of ten fields take it 5 ms,
# 8 against 9 take 23 ms.
_MOST_PAIRS = 12
_MOST_BYTES = 4096
# Objects further apart than this are not one and the same.
_DISTANCE = 0.6
_ALONE = ("iterable_item_added", "iterable_item_removed")


class Likeness:
    """Pairs items, and asks DeepDiff about so many pairs of objects only in one comparison."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = _MOST_PAIRS

    def pair_up(self, left: list[Json], came: list[Json]) -> Pairs:
        """Indexes of removed and added items that are one item, changed; each at most once.

        One against one is a pair. Beyond what DeepDiff is asked about they pair in their order.
        """
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
    from deepdiff import DeepDiff  # a third of a second to import, and most never need it

    # Only texts: DeepDiff takes true for near 1 and cannot take numbers beyond float.
    found = DeepDiff(
        [_texts(item) for item in left],
        [_texts(item) for item in came],
        ignore_order=True,
        ignore_private_variables=False,  # else keys that begin with __ are left out
        view="tree",
        cutoff_distance_for_pairs=_DISTANCE,
        cutoff_intersection_for_pairs=1,
    )
    pairs: dict[int, int] = {}
    for report, levels in found.items():
        for level in levels:
            if report in _ALONE and level.up.up is None:
                continue  # the whole item came or went
            origin = level.path(output_format="list")[0]
            target = level.path(output_format="list", use_t2=True)[0]
            if origin not in pairs and target not in pairs.values():
                pairs[origin] = target
    return list(pairs.items())


def _texts(value: Json) -> Any:
    if type(value) is dict:
        return {key: _texts(inner) for key, inner in value.items()}
    if type(value) is list:
        return [_texts(inner) for inner in value]
    return dumps(value).decode()
