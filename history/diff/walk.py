"""Compares two snapshots in one walk that collects the changes and the patch."""

from collections.abc import Iterable, Iterator

from history.common import deadline
from history.diff.align import ListAlignment, SimilarItemMatcher, align_lists
from history.diff.change import MISSING, Diff, MaybeJson, Operation, ValueChange
from history.diff.equality import (
    ChangedKey,
    find_changed_keys,
    insert_removed_keys,
    is_equal_number,
    is_identical,
    make_fingerprint,
)
from history.diff.identity import DEFAULT_IDENTITY, ListIdentity
from history.diff.leaves import MAX_PATH_CHARACTERS, LongPathsError
from history.diff.path import escape_key, name_key
from history.documents.exactjson import Json, dumps


def generate_list_operations(
    path: str, alignment: ListAlignment, new: list[Json]
) -> Iterator[Operation]:
    """Generate the operations that put every item at its new index, in O(n log n).

    Removals come first, from the last index to the first. Additions and moves follow, from the
    first index to the last. The operations do not change the content of matched items.
    """
    for index in reversed(alignment.removed):
        yield {"op": "remove", "path": f"{path}/{index}"}
    if alignment.moved:
        yield from _generate_moves(path, alignment, new)
        return
    for index, origin in enumerate(alignment.source):
        if origin < 0:
            yield {"op": "add", "path": f"{path}/{index}", "value": new[index]}


def _generate_moves(path: str, alignment: ListAlignment, new: list[Json]) -> Iterator[Operation]:
    """Generate the additions and moves that reorder a list, one for each item that is not in place.

    The operations are in the order of the new list. An operation puts an item directly behind the
    item that precedes it in the new list.
    """
    left_slots, target_slots, occupied = _assign_slots(alignment)
    count = _SlotCounter(occupied)
    for index, origin in enumerate(alignment.source):
        if origin < 0:
            slot = target_slots[index]
            yield {"op": "add", "path": f"{path}/{count.count_before(slot)}", "value": new[index]}
            count.change_slot(slot, 1)
        elif index in alignment.moved:
            start = count.count_before(left_slots[origin])
            count.change_slot(left_slots[origin], -1)
            end = count.count_before(target_slots[index])
            count.change_slot(target_slots[index], 1)
            if start != end:
                yield {"op": "move", "from": f"{path}/{start}", "path": f"{path}/{end}"}


def _assign_slots(alignment: ListAlignment) -> tuple[dict[int, int], dict[int, int], list[int]]:
    """Assign numbered slots to the items of a list that is reordered.

    An item that does not move has one slot. A moved item has two: the slot that it leaves, and the
    slot that it takes. An added item has the slot that it takes.

    Returns:
        1. The slots that moved items leave, by the item's old index.
        2. The slots that moved and added items take, by the item's new index.
        3. A number for each slot: 1 if an item is in the slot before the reordering, otherwise 0.
    """
    movers = sorted(alignment.source[index] for index in alignment.moved)
    waiting = iter(movers)
    mover = next(waiting, -1)
    left_slots: dict[int, int] = {}
    target_slots: dict[int, int] = {}
    occupied: list[int] = []
    for index, origin in enumerate(alignment.source):
        if origin < 0 or index in alignment.moved:
            target_slots[index] = len(occupied)
            occupied.append(0)
            continue
        while 0 <= mover < origin:
            left_slots[mover] = len(occupied)
            occupied.append(1)
            mover = next(waiting, -1)
        occupied.append(1)
    while mover >= 0:
        left_slots[mover] = len(occupied)
        occupied.append(1)
        mover = next(waiting, -1)
    return left_slots, target_slots, occupied


class _SlotCounter:
    """A Fenwick tree that counts how many of the slots before a given slot hold an item."""

    def __init__(self, occupied: list[int]) -> None:
        self._sums = [0, *occupied]
        for node in range(1, len(self._sums)):
            parent = node + (node & -node)
            if parent < len(self._sums):
                self._sums[parent] += self._sums[node]

    def count_before(self, slot: int) -> int:
        total = 0
        while slot > 0:
            total += self._sums[slot]
            slot -= slot & -slot
        return total

    def change_slot(self, slot: int, amount: int) -> None:
        node = slot + 1
        while node < len(self._sums):
            self._sums[node] += amount
            node += node & -node


# Down to this level the walk first compares a part as text, to skip it if it is identical. Deeper
# down that takes more time than it saves.
_DEEP_LEVELS = 24
# How many bytes an item of a container has at least. Lengths are measured only if the operations
# may be longer than the container.
_LEAST_ITEM = 8

# Up to this number of operations, lengths are not compared. An operation has at least
# _LEAST_OPERATION bytes besides its path.
_FEW_OPERATIONS = 16
_LEAST_OPERATION = 29

# The pointer into the new snapshot, the pointer into the old one, and the key path. Equal paths
# are the same object.
PathTriple = tuple[str, str, str]


def compare_snapshots(old: Json, new: Json, identity: ListIdentity = DEFAULT_IDENTITY) -> Diff:
    """Return the changes and the patch of two snapshots, from one walk."""
    walk = _DiffWalk(identity)
    try:
        if type(new) in (dict, list) or not is_identical(old, new):
            walk.compare_values(old, new, ("", "", ""), 0)
    except (RecursionError, LongPathsError):
        # Too deep to walk, or too many long paths: report one change of the whole snapshot.
        walk = _DiffWalk(identity)
        walk.report_replaced(old, new, "", "")
    return Diff(tuple(walk.changes), walk.patch)


def list_changes(
    old: Json, new: Json, identity: ListIdentity = DEFAULT_IDENTITY
) -> tuple[ValueChange, ...]:
    """Return the changes between two snapshots. See `Diff.changes`."""
    return compare_snapshots(old, new, identity).changes


def make_patch(old: Json, new: Json, identity: ListIdentity = DEFAULT_IDENTITY) -> list[Operation]:
    """Return RFC 6902 operations (add, remove, replace, move) that turn `old` into `new`."""
    return compare_snapshots(old, new, identity).patch


class _DiffWalk:
    """A walk through two snapshots that collects their changes and the patch."""

    __slots__ = ("changes", "identity", "left", "matcher", "patch")

    def __init__(self, identity: ListIdentity) -> None:
        self.identity = identity
        self.matcher = SimilarItemMatcher()
        self.changes: list[ValueChange] = []
        self.patch: list[Operation] = []
        self.left = MAX_PATH_CHARACTERS  # how many characters the paths to come may have

    def compare_values(self, old: Json, new: Json, paths: PathTriple, depth: int) -> None:
        """Compare two values and collect their changes.

        The caller must not pass identical values, except two objects or two lists.
        """
        if type(old) is dict and type(new) is dict:
            self.compare_objects(old, new, paths, depth)
        elif type(old) is list and type(new) is list:
            self.compare_lists(old, new, paths, depth)
        elif is_equal_number(old, new):
            if dumps(old) != dumps(new):
                self.patch.append({"op": "replace", "path": paths[0], "value": new})
        else:
            self.report_replaced(old, new, paths[0], paths[2])

    def compare_objects(
        self, old: dict[str, Json], new: dict[str, Json], paths: PathTriple, depth: int
    ) -> None:
        deadline.check()
        path, old_path, key_path = paths
        changed, has_old_keys = find_changed_keys(old, new, depth < _DEEP_LEVELS)
        self.spend_path_characters(len(changed) * (len(path) + len(key_path)))
        renamed: set[str] = set()
        first_operation = len(self.patch)
        if not has_old_keys:
            changed = insert_removed_keys(old, new, changed)
            renamed = self.add_renames(changed, path)
        for key, before, after in changed:
            if key.isidentifier():  # no character to escape
                segment = key
                member_path = f"{path}/{key}"
                name = member_path if key_path is path else f"{key_path}/{key}"
            else:
                segment = escape_key(key)
                member_path, name = f"{path}/{segment}", f"{key_path}/{name_key(segment)}"
            if before is MISSING:
                self.changes.append(ValueChange(member_path, name, "added", MISSING, after))
                if key not in renamed:
                    self.patch.append({"op": "add", "path": member_path, "value": after})
            elif after is MISSING:
                self.changes.append(ValueChange(f"{old_path}/{segment}", name, "removed", before))
                if key not in renamed:
                    self.patch.append({"op": "remove", "path": member_path})
            elif type(after) is str:
                self.report_replaced(before, after, member_path, name)
            else:
                origin = member_path if old_path is path else f"{old_path}/{segment}"
                self.compare_values(before, after, (member_path, origin, name), depth + 1)
        if len(self.patch) > first_operation + 1:
            self.replace_if_shorter(first_operation, path, new, depth)

    def spend_path_characters(self, length: int) -> None:
        """Subtract the length of a path from the characters that are left.

        Raises:
            LongPathsError: No characters are left.
        """
        self.left -= length
        if self.left < 0:
            raise LongPathsError

    def compare_lists(
        self, old: list[Json], new: list[Json], paths: PathTriple, depth: int
    ) -> None:
        path = paths[0]
        alignment = align_lists(old, new, self.identity.get_keys_at(path), self.matcher)
        rearranged = len(alignment.removed) + len(alignment.moved) + alignment.source.count(-1)
        self.spend_path_characters(rearranged * (len(path) + len(paths[2])))
        first_operation = len(self.patch)
        is_rewritten = self.is_shorter_rewritten(path, alignment, new)
        if not is_rewritten:
            self.patch.extend(generate_list_operations(path, alignment, new))
        removed = _group_removed(alignment) if alignment.removed else {}
        self.report_removed_items(old, removed.get(-1, ()), alignment, paths)
        for index, origin in enumerate(alignment.source):
            if (
                origin < 0
                or index in alignment.moved
                or (index in alignment.unsure and not is_identical(old[origin], new[index]))
            ):
                self.report_item(old, new, index, alignment, paths, depth)
            if index in removed:
                self.report_removed_items(old, removed[index], alignment, paths)
        if is_rewritten:
            self.patch[first_operation:] = [{"op": "replace", "path": path, "value": new}]
        elif len(self.patch) > first_operation + 1:
            self.replace_if_shorter(first_operation, path, new, depth)

    @staticmethod
    def is_shorter_rewritten(path: str, alignment: ListAlignment, new: list[Json]) -> bool:
        """Return whether a patch that replaces the whole list is certainly the shorter patch.

        The alternative is a patch that removes, moves and adds items.
        """
        count = len(alignment.removed) + len(alignment.moved) + alignment.source.count(-1)
        if count <= _FEW_OPERATIONS:
            return False
        return count * (_LEAST_OPERATION + len(path)) > len(dumps(new)) + 40 + len(path)

    def report_item(
        self,
        old: list[Json],
        new: list[Json],
        index: int,
        alignment: ListAlignment,
        paths: PathTriple,
        depth: int,
    ) -> None:
        """Collect the changes of one list item that was added or moved, or that may have changed.

        Args:
            index: The index of the item in `new`.
        """
        path, old_path, key_path = paths
        deadline.check()
        self.spend_path_characters(len(path) + len(key_path))
        origin, after = alignment.source[index], new[index]
        item_path = f"{path}/{index}"
        if alignment.names:
            name = f"{key_path}/{alignment.get_segment(index)}"
        else:
            name = item_path if key_path is path else f"{key_path}/{index}"
        if origin < 0:
            self.changes.append(ValueChange(item_path, name, "added", MISSING, after))
            return
        before = old[origin]
        if index in alignment.moved:
            self.changes.append(ValueChange(item_path, name, "moved", before, after, origin, index))
            if is_identical(before, after):
                return
        if index in alignment.unsure:
            old_item_path = (
                item_path if old_path is path and origin == index else f"{old_path}/{origin}"
            )
            self.compare_values(before, after, (item_path, old_item_path, name), depth + 1)

    def report_removed_items(
        self, old: list[Json], indexes: Iterable[int], alignment: ListAlignment, paths: PathTriple
    ) -> None:
        _, old_path, key_path = paths
        for index in indexes:
            name = f"{key_path}/{alignment.get_old_segment(index)}"
            self.changes.append(ValueChange(f"{old_path}/{index}", name, "removed", old[index]))

    def report_replaced(self, old: MaybeJson, new: MaybeJson, path: str, key_path: str) -> None:
        self.changes.append(ValueChange(path, key_path, "changed", old, new))
        self.patch.append({"op": "replace", "path": path, "value": new})

    def add_renames(self, changed: list[ChangedKey], path: str) -> set[str]:
        """Add a move for every value that now has another key. Return the old and new keys."""
        removed_keys = {
            make_fingerprint(before): key
            for key, before, after in changed
            if before is not MISSING and after is MISSING
        }
        renamed_keys: set[str] = set()
        for key, before, after in changed:
            if before is MISSING and after is not MISSING:
                origin = removed_keys.pop(make_fingerprint(after), None)
                if origin is not None:
                    old_path, new_path = f"{path}/{escape_key(origin)}", f"{path}/{escape_key(key)}"
                    self.patch.append({"op": "move", "from": old_path, "path": new_path})
                    renamed_keys.update((origin, key))
        return renamed_keys

    def replace_if_shorter(
        self, first_operation: int, path: str, new: dict[str, Json] | list[Json], depth: int
    ) -> None:
        """Replace all operations in a container by one that writes the container, if shorter.

        Args:
            first_operation: The index of the container's first operation in the patch. All later
                operations are in the container too.
            path: The pointer of the container.
            new: The container in the new snapshot.
        """
        count = len(self.patch) - first_operation
        if depth >= _DEEP_LEVELS or count * (45 + len(path)) < _LEAST_ITEM * len(new):
            return
        replacement: Operation = {"op": "replace", "path": path, "value": new}
        if len(dumps([replacement])) < len(dumps(self.patch[first_operation:])):
            self.patch[first_operation:] = [replacement]


def _group_removed(alignment: ListAlignment) -> dict[int, list[int]]:
    """Group removed items by the item that they follow in the old list.

    The items that they follow are in both lists and did not move.

    Returns:
        The old indexes of the removed items, by the new index of the item that they follow. The
        key -1 has the removed items that do not follow any such item.
    """
    stays = [
        (origin, index)
        for index, origin in enumerate(alignment.source)
        if origin >= 0 and index not in alignment.moved
    ]
    behind: dict[int, list[int]] = {}
    position = 0
    for index in alignment.removed:
        while position < len(stays) and stays[position][0] < index:
            position += 1
        behind.setdefault(stays[position - 1][1] if position else -1, []).append(index)
    return behind
