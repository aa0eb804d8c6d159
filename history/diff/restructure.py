"""RFC 6902 operations that put the items of a list at their new indexes."""

from collections.abc import Iterator

from history.diff.align import Alignment
from history.diff.change import Operation
from history.exactjson import Json


def restructure(path: str, places: Alignment, new: list[Json]) -> Iterator[Operation]:
    """Removals from the back, then additions and moves from the front; O(n log n).

    They put every item at its new index. They do not change what is inside matched items.
    """
    for index in reversed(places.gone):
        yield {"op": "remove", "path": f"{path}/{index}"}
    if places.moved:
        yield from _with_moves(path, places, new)
        return
    for index, origin in enumerate(places.source):
        if origin < 0:
            yield {"op": "add", "path": f"{path}/{index}", "value": new[index]}


def _with_moves(path: str, places: Alignment, new: list[Json]) -> Iterator[Operation]:
    """Puts every added or moved item directly after the item that it follows in the new list.

    Items that are not moved yet stay in between and count in the indexes. The order of all slots
    that are ever taken is known in advance, so an index is the number of taken slots before it.
    """
    leaves, arrives, taken = _slots(places)
    count = _Counter(taken)
    for index, origin in enumerate(places.source):
        if origin < 0:
            slot = arrives[index]
            yield {"op": "add", "path": f"{path}/{count.before(slot)}", "value": new[index]}
            count.change(slot, 1)
        elif index in places.moved:
            start = count.before(leaves[origin])
            count.change(leaves[origin], -1)
            end = count.before(arrives[index])
            count.change(arrives[index], 1)
            if start != end:
                yield {"op": "move", "from": f"{path}/{start}", "path": f"{path}/{end}"}


def _slots(places: Alignment) -> tuple[dict[int, int], dict[int, int], list[int]]:
    """Slots in one order: those that moved items leave (by old index), those that moved and
    added items take (by new index), and for every slot 1 if it is taken at the beginning.
    """
    movers = sorted(places.source[index] for index in places.moved)
    waiting = iter(movers)
    mover = next(waiting, -1)
    leaves: dict[int, int] = {}
    arrives: dict[int, int] = {}
    taken: list[int] = []
    for index, origin in enumerate(places.source):
        if origin < 0 or index in places.moved:
            arrives[index] = len(taken)
            taken.append(0)
            continue
        while 0 <= mover < origin:
            leaves[mover] = len(taken)
            taken.append(1)
            mover = next(waiting, -1)
        taken.append(1)
    while mover >= 0:
        leaves[mover] = len(taken)
        taken.append(1)
        mover = next(waiting, -1)
    return leaves, arrives, taken


class _Counter:
    """Counts the taken slots before a slot while slots change (a Fenwick tree)."""

    def __init__(self, taken: list[int]) -> None:
        self._sums = [0, *taken]
        for node in range(1, len(self._sums)):
            parent = node + (node & -node)
            if parent < len(self._sums):
                self._sums[parent] += self._sums[node]

    def before(self, slot: int) -> int:
        total = 0
        while slot > 0:
            total += self._sums[slot]
            slot -= slot & -slot
        return total

    def change(self, slot: int, amount: int) -> None:
        node = slot + 1
        while node < len(self._sums):
            self._sums[node] += amount
            node += node & -node
