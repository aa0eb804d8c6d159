"""The walk over two snapshots that yields their changes and the patch between them."""

from history.diff.align import Alignment, align
from history.diff.change import MISSING, Change, Diff, Maybe, Operation
from history.diff.equal import CAREFUL, encode, equal_numbers, same, token
from history.diff.identity import DEFAULT, Identity
from history.diff.path import escape, name_item, name_key
from history.diff.restructure import restructure
from history.exactjson import Json

# Comparing or measuring a part before walking into it pays off near the top; in a chain of
# thousands of nested parts it would read the innermost thousands of times.
_DEEP = 24
# The operations in a container are weighed against the whole only where they could be more:
# an untouched item has at least about so many bytes.
_LEAST_ITEM = 8

# An object's key with its old and its new value.
Touched = tuple[str, Maybe, Maybe]


def compare(old: Json, new: Json, identity: Identity = DEFAULT) -> Diff:
    """Changes and patch from one walk."""
    walk = _walk(old, new, identity, want_changes=True, want_patch=True)
    return Diff(tuple(walk.changes), walk.ops)


def changes(old: Json, new: Json, identity: Identity = DEFAULT) -> tuple[Change, ...]:
    """What changed, in document order of the new snapshot, removals where they stood."""
    return tuple(_walk(old, new, identity, want_changes=True, want_patch=False).changes)


def patch(old: Json, new: Json, identity: Identity = DEFAULT) -> list[Operation]:
    """RFC 6902 operations (add, remove, replace, move) that turn old into exactly new."""
    return _walk(old, new, identity, want_changes=False, want_patch=True).ops


def _walk(
    old: Json, new: Json, identity: Identity, *, want_changes: bool, want_patch: bool
) -> "_Walk":
    walk = _Walk(identity, want_changes, want_patch)
    try:
        walk.value(old, new, "", "", 0)
    except RecursionError:
        # Nested too deep to walk: the whole snapshot is the smallest difference we can tell.
        walk = _Walk(identity, want_changes, want_patch)
        walk.replaced(old, new, "", "")
    return walk


class _Walk:
    """Collects what it finds; `path` and `named` are the pointer and the key path so far."""

    __slots__ = ("changes", "identity", "ops", "want_changes", "want_patch")

    def __init__(self, identity: Identity, want_changes: bool, want_patch: bool) -> None:
        self.identity = identity
        self.want_changes = want_changes
        self.want_patch = want_patch
        self.changes: list[Change] = []
        self.ops: list[Operation] = []

    def value(self, old: Json, new: Json, path: str, named: str, depth: int) -> None:
        if type(old) is dict and type(new) is dict:
            self.objects(old, new, path, named, depth)
        elif type(old) is list and type(new) is list:
            self.lists(old, new, path, named, depth)
        elif equal_numbers(old, new):
            if self.want_patch and encode(old) != encode(new):
                self.ops.append({"op": "replace", "path": path, "value": new})
        elif not same(old, new):
            self.replaced(old, new, path, named)

    def objects(
        self, old: dict[str, Json], new: dict[str, Json], path: str, named: str, depth: int
    ) -> None:
        touched, all_found = _touched(old, new, depth < _DEEP)
        if not all_found:
            touched = _with_removed(old, new, touched)
        if not touched:
            return
        first = len(self.ops)
        renamed: set[str] = set()
        if self.want_patch and not all_found:
            renamed = self.renamed(touched, path)
        for key, before, after in touched:
            segment = escape(key)
            place = f"{path}/{segment}"
            label = name_key(segment)
            name = place if named is path and label is segment else f"{named}/{label}"
            if before is MISSING:
                self.added(after, place, name, in_patch=key not in renamed)
            elif after is MISSING:
                self.removed(before, place, name, in_patch=key not in renamed)
            else:
                self.value(before, after, place, name, depth + 1)
        self.shorten(first, path, new, depth)

    def added(self, new: Maybe, path: str, named: str, *, in_patch: bool) -> None:
        if self.want_changes:
            self.changes.append(Change(path, named, "added", MISSING, new))
        if in_patch and self.want_patch:
            self.ops.append({"op": "add", "path": path, "value": new})

    def removed(self, old: Maybe, path: str, named: str, *, in_patch: bool) -> None:
        if self.want_changes:
            self.changes.append(Change(path, named, "removed", old))
        if in_patch and self.want_patch:
            self.ops.append({"op": "remove", "path": path})

    def lists(self, old: list[Json], new: list[Json], path: str, named: str, depth: int) -> None:
        places = align(old, new, self.identity.at(path))
        first = len(self.ops)
        if self.want_patch:
            self.ops.extend(restructure(path, places, new))
        gone = iter(places.gone)
        left = next(gone, -1)
        for index, origin in enumerate(places.source):
            if origin >= 0 and index not in places.moved:
                while 0 <= left < origin:
                    self.item_removed(old, left, places, path, named)
                    left = next(gone, -1)
                if index not in places.unsure or same(old[origin], new[index]):
                    continue
            self.item(old, new, index, places, path, named, depth)
        while left >= 0:
            self.item_removed(old, left, places, path, named)
            left = next(gone, -1)
        self.shorten(first, path, new, depth)

    def item(
        self,
        old: list[Json],
        new: list[Json],
        index: int,
        places: Alignment,
        path: str,
        named: str,
        depth: int,
    ) -> None:
        origin = places.source[index]
        place = f"{path}/{index}"
        name = _item_name(named, index, places.key, places.names)
        if origin < 0:
            self.added(new[index], place, name, in_patch=False)
            return
        if self.want_changes and index in places.moved:
            self.changes.append(
                Change(place, name, "moved", old[origin], new[index], origin, index)
            )
        if index in places.unsure:
            self.value(old[origin], new[index], place, name, depth + 1)

    def item_removed(
        self, old: list[Json], index: int, places: Alignment, path: str, named: str
    ) -> None:
        name = _item_name(named, index, places.key, places.old_names)
        self.removed(old[index], f"{path}/{index}", name, in_patch=False)

    def replaced(self, old: Json, new: Json, path: str, named: str) -> None:
        if self.want_changes:
            self.changes.append(Change(path, named, "changed", old, new))
        if self.want_patch:
            self.ops.append({"op": "replace", "path": path, "value": new})

    def renamed(self, touched: list[Touched], path: str) -> set[str]:
        """Moves each value that left one key of an object and came under another; those keys."""
        gone = {
            token(before): key
            for key, before, after in touched
            if after is MISSING and before is not MISSING
        }
        done: set[str] = set()
        for key, before, after in touched:
            if before is MISSING and after is not MISSING:
                origin = gone.pop(token(after), None)
                if origin is not None:
                    there, here = f"{path}/{escape(origin)}", f"{path}/{escape(key)}"
                    self.ops.append({"op": "move", "from": there, "path": here})
                    done.update((origin, key))
        return done

    def shorten(self, first: int, path: str, new: dict[str, Json] | list[Json], depth: int) -> None:
        """Replaces a container whole where that is shorter than the operations inside it."""
        count = len(self.ops) - first
        if count < 2 or depth >= _DEEP or count * (45 + len(path)) < _LEAST_ITEM * len(new):
            return
        whole: Operation = {"op": "replace", "path": path, "value": new}
        if len(encode([whole])) < len(encode(self.ops[first:])):
            self.ops[first:] = [whole]


def _touched(old: dict[str, Json], new: dict[str, Json], prune: bool) -> tuple[list[Touched], bool]:
    """The keys of new that are added or not the same, and whether every key of old was met."""
    touched: list[Touched] = []
    alike: list[str] = []  # equal to Python, the texts still to be compared, all at once
    added = 0
    get = old.get
    for key, after in new.items():
        before = get(key, MISSING)
        if before is after:
            continue
        if before is MISSING:
            added += 1
        elif before == after:
            kind = type(after)
            if type(before) is kind:
                if kind not in CAREFUL:
                    continue
                if prune:
                    alike.append(key)
                    continue
        touched.append((key, before, after))
    if alike and encode([old[key] for key in alike]) != encode([new[key] for key in alike]):
        rest = set(alike) - {key for key in alike if same(old[key], new[key])}
        rest.update(key for key, _, _ in touched)
        touched = [(key, get(key, MISSING), new[key]) for key in new if key in rest]
    return touched, len(new) - added == len(old)


def _item_name(named: str, index: int, key: str, names: list[str] | None) -> str:
    if names is not None:
        return f"{named}/{name_item(key, names[index])}"
    return f"{named}/{index}"


def _with_removed(
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
