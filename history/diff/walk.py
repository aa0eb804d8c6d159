"""Walks over two snapshots at once and collects their changes and the patch."""

from collections.abc import Iterable, Iterator

from history.diff.align import Alignment, Similarity, align
from history.diff.change import MISSING, Change, Diff, Maybe, Operation
from history.diff.equal import (
    ChangedKey,
    changed_keys,
    equal_numbers,
    fingerprint,
    identical,
    with_removed,
)
from history.diff.identity import DEFAULT, Identity
from history.diff.leaves import MOST, LongPathsError
from history.diff.path import escape, name_key
from history.documents.exactjson import Json, dumps
from history.requests import deadline


def restructure(path: str, places: Alignment, new: list[Json]) -> Iterator[Operation]:
    """Removals from the back, then additions and moves from the front, which put every item at its
    new index; O(n log n). What is inside matched items stays."""
    for index in reversed(places.gone):
        yield {"op": "remove", "path": f"{path}/{index}"}
    if places.moved:
        yield from _with_moves(path, places, new)
        return
    for index, origin in enumerate(places.source):
        if origin < 0:
            yield {"op": "add", "path": f"{path}/{index}", "value": new[index]}


def _with_moves(path: str, places: Alignment, new: list[Json]) -> Iterator[Operation]:
    """Puts every added or moved item directly after the item that it follows in the new list."""
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


# Near the top, measuring a part before the walk enters it saves time; in deep chains it would not.
_DEEP = 24
# The least bytes of an item: lengths are compared only if the operations could be longer.
_LEAST_ITEM = 8

# So few operations need no comparison. Each has at least this many bytes besides its path.
_FEW = 16
_LEAST_OPERATION = 29

# The pointers into the new and the old snapshot, and the key path; one object if they are equal.
Place = tuple[str, str, str]


def compare(old: Json, new: Json, identity: Identity = DEFAULT) -> Diff:
    """The changes and the patch, from one walk."""
    walk = _Walk(identity)
    try:
        if type(new) in (dict, list) or not identical(old, new):
            walk.value(old, new, ("", "", ""), 0)
    except (RecursionError, LongPathsError):
        # Nested too deep to walk, or too many long paths: report a change of the whole snapshot.
        walk = _Walk(identity)
        walk.replaced(old, new, "", "")
    return Diff(tuple(walk.changes), walk.patch)


def changes(old: Json, new: Json, identity: Identity = DEFAULT) -> tuple[Change, ...]:
    """What changed, in document order of the new snapshot, removals at their old position."""
    return compare(old, new, identity).changes


def patch(old: Json, new: Json, identity: Identity = DEFAULT) -> list[Operation]:
    """RFC 6902 operations (add, remove, replace, move) that turn old into exactly new."""
    return compare(old, new, identity).patch


class _Walk:
    """One walk and what it has found."""

    __slots__ = ("changes", "identity", "left", "patch", "similarity")

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self.similarity = Similarity()
        self.changes: list[Change] = []
        self.patch: list[Operation] = []
        self.left = MOST  # characters of paths

    def value(self, old: Json, new: Json, place: Place, depth: int) -> None:
        """Compare two values that are not identical, or containers that may be."""
        if type(old) is dict and type(new) is dict:
            self.objects(old, new, place, depth)
        elif type(old) is list and type(new) is list:
            self.lists(old, new, place, depth)
        elif equal_numbers(old, new):
            if dumps(old) != dumps(new):
                self.patch.append({"op": "replace", "path": place[0], "value": new})
        else:
            self.replaced(old, new, place[0], place[2])

    def objects(self, old: dict[str, Json], new: dict[str, Json], place: Place, depth: int) -> None:
        deadline.check()
        path, was, named = place
        changed, all_found = changed_keys(old, new, depth < _DEEP)
        self.spend(len(changed) * (len(path) + len(named)))
        renamed: set[str] = set()
        first = len(self.patch)
        if not all_found:
            changed = with_removed(old, new, changed)
            renamed = self.renamed(changed, path)
        for key, before, after in changed:
            if key.isidentifier():  # no character to escape
                segment = key
                there = f"{path}/{key}"
                name = there if named is path else f"{named}/{key}"
            else:
                segment = escape(key)
                there, name = f"{path}/{segment}", f"{named}/{name_key(segment)}"
            if before is MISSING:
                self.changes.append(Change(there, name, "added", MISSING, after))
                if key not in renamed:
                    self.patch.append({"op": "add", "path": there, "value": after})
            elif after is MISSING:
                self.changes.append(Change(f"{was}/{segment}", name, "removed", before))
                if key not in renamed:
                    self.patch.append({"op": "remove", "path": there})
            elif type(after) is str:
                self.replaced(before, after, there, name)
            else:
                origin = there if was is path else f"{was}/{segment}"
                self.value(before, after, (there, origin, name), depth + 1)
        if len(self.patch) > first + 1:
            self.shorten(first, path, new, depth)

    def spend(self, length: int) -> None:
        """Raises LongPathsError where the paths of all changes together become too long."""
        self.left -= length
        if self.left < 0:
            raise LongPathsError

    def lists(self, old: list[Json], new: list[Json], place: Place, depth: int) -> None:
        path = place[0]
        places = align(old, new, self.identity.at(path), self.similarity)
        rearranged = len(places.gone) + len(places.moved) + places.source.count(-1)
        self.spend(rearranged * (len(path) + len(place[2])))
        first = len(self.patch)
        rewritten = self.rewritten(path, places, new)
        if not rewritten:
            self.patch.extend(restructure(path, places, new))
        removed = _removed_behind(places) if places.gone else {}
        self.items_removed(old, removed.get(-1, ()), places, place)
        for index, origin in enumerate(places.source):
            if (
                origin < 0
                or index in places.moved
                or (index in places.unsure and not identical(old[origin], new[index]))
            ):
                self.item(old, new, index, places, place, depth)
            if index in removed:
                self.items_removed(old, removed[index], places, place)
        if rewritten:
            self.patch[first:] = [{"op": "replace", "path": path, "value": new}]
        elif len(self.patch) > first + 1:
            self.shorten(first, path, new, depth)

    @staticmethod
    def rewritten(path: str, places: Alignment, new: list[Json]) -> bool:
        """Whether the operations that move items are certainly longer than the whole list."""
        count = len(places.gone) + len(places.moved) + places.source.count(-1)
        if count <= _FEW:
            return False
        return count * (_LEAST_OPERATION + len(path)) > len(dumps(new)) + 40 + len(path)

    def item(
        self,
        old: list[Json],
        new: list[Json],
        index: int,
        places: Alignment,
        place: Place,
        depth: int,
    ) -> None:
        """An item that was added, was moved, or may have changed."""
        path, was, named = place
        deadline.check()
        self.spend(len(path) + len(named))
        origin, after = places.source[index], new[index]
        there = f"{path}/{index}"
        if places.names:
            name = f"{named}/{places.segment(index)}"
        else:
            name = there if named is path else f"{named}/{index}"
        if origin < 0:
            self.changes.append(Change(there, name, "added", MISSING, after))
            return
        before = old[origin]
        if index in places.moved:
            self.changes.append(Change(there, name, "moved", before, after, origin, index))
            if identical(before, after):
                return
        if index in places.unsure:
            here = there if was is path and origin == index else f"{was}/{origin}"
            self.value(before, after, (there, here, name), depth + 1)

    def items_removed(
        self, old: list[Json], indexes: Iterable[int], places: Alignment, place: Place
    ) -> None:
        _, was, named = place
        for index in indexes:
            name = f"{named}/{places.old_segment(index)}"
            self.changes.append(Change(f"{was}/{index}", name, "removed", old[index]))

    def replaced(self, old: Maybe, new: Maybe, path: str, named: str) -> None:
        self.changes.append(Change(path, named, "changed", old, new))
        self.patch.append({"op": "replace", "path": path, "value": new})

    def renamed(self, changed: list[ChangedKey], path: str) -> set[str]:
        """Adds a move for every value that changed its key in an object; returns all these keys."""
        gone = {
            fingerprint(before): key
            for key, before, after in changed
            if before is not MISSING and after is MISSING
        }
        done: set[str] = set()
        for key, before, after in changed:
            if before is MISSING and after is not MISSING:
                origin = gone.pop(fingerprint(after), None)
                if origin is not None:
                    there, here = f"{path}/{escape(origin)}", f"{path}/{escape(key)}"
                    self.patch.append({"op": "move", "from": there, "path": here})
                    done.update((origin, key))
        return done

    def shorten(self, first: int, path: str, new: dict[str, Json] | list[Json], depth: int) -> None:
        """Replaces the whole container if that is shorter than the operations inside it."""
        count = len(self.patch) - first
        if depth >= _DEEP or count * (45 + len(path)) < _LEAST_ITEM * len(new):
            return
        whole: Operation = {"op": "replace", "path": path, "value": new}
        if len(dumps([whole])) < len(dumps(self.patch[first:])):
            self.patch[first:] = [whole]


def _removed_behind(places: Alignment) -> dict[int, list[int]]:
    """The removed old indexes by the new index of the item before them, -1 at the front."""
    stays = [
        (origin, index)
        for index, origin in enumerate(places.source)
        if origin >= 0 and index not in places.moved
    ]
    behind: dict[int, list[int]] = {}
    position = 0
    for index in places.gone:
        while position < len(stays) and stays[position][0] < index:
            position += 1
        behind.setdefault(stays[position - 1][1] if position else -1, []).append(index)
    return behind
