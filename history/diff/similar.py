"""Which removed item of a list without keys became which added one.

DeepDiff decides it, by how far apart two objects are. It takes about a third of a millisecond per
pair of objects it looks at, so it is asked only about a few small ones (docs/decisions/0012).
"""

from history.diff.equal import encode
from history.exactjson import Json

Pairs = list[tuple[int, int]]

# 3 removed against 4 added objects of ten fields take DeepDiff 5 ms, 8 against 9 take 23 ms.
_MOST_PAIRS = 12
_MOST_BYTES = 4096
# Objects further apart than this are not one and the same.
_DISTANCE = 0.6


def pair_up(left: list[Json], came: list[Json]) -> Pairs:
    """Indexes of removed and added items that are one item, changed; each at most once.

    One against one is a pair. Beyond what DeepDiff is asked about they pair in their order.
    """
    product = len(left) * len(came)
    if (
        1 < product <= _MOST_PAIRS
        and all(type(item) is dict for item in (*left, *came))
        and len(encode(left)) + len(encode(came)) <= _MOST_BYTES
    ):
        return _by_distance(left, came)
    return [(index, index) for index in range(min(len(left), len(came)))]


def _by_distance(left: list[Json], came: list[Json]) -> Pairs:
    from deepdiff import DeepDiff  # a third of a second to import, and most never need it

    found = DeepDiff(
        left,
        came,
        ignore_order=True,
        view="tree",
        cutoff_distance_for_pairs=_DISTANCE,
        cutoff_intersection_for_pairs=1,
    )
    pairs: dict[int, int] = {}
    removed: set[int] = set()
    added: set[int] = set()
    for report, levels in found.items():
        for level in levels:
            if report == "iterable_item_removed" and level.up.up is None:
                removed.add(level.path(output_format="list")[0])
            elif report == "iterable_item_added" and level.up.up is None:
                added.add(level.path(output_format="list", use_t2=True)[0])
            else:
                origin = level.path(output_format="list")[0]
                pairs[origin] = level.path(output_format="list", use_t2=True)[0]
    # What DeepDiff does not mention it takes for equal, as 1.0 and 1.00.
    same_left = [i for i in range(len(left)) if i not in pairs and i not in removed]
    taken = {*pairs.values(), *added}
    same_came = [j for j in range(len(came)) if j not in taken]
    return [*pairs.items(), *zip(same_left, same_came, strict=False)]
