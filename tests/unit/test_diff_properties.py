"""What holds for the changes between any two snapshots."""

import copy
from decimal import Context, Decimal
from typing import Any

from deepdiff import DeepDiff
from hypothesis import given
from hypothesis import strategies as st
from jsonpointer import resolve_pointer

from history.diff import MISSING, Change, Identity, changes, compare, patch
from tests.unit.diff_documents import DOCUMENTS, KEYS, PAIRS, SCALARS, equal, exact


@given(PAIRS)
def test_none_if_and_only_if_equal_as_json(pair: tuple[Any, Any]) -> None:
    old, new = pair
    assert (changes(old, new) == ()) == equal(old, new)


@given(DOCUMENTS)
def test_a_copy_has_no_changes(document: Any) -> None:
    assert compare(document, copy.deepcopy(document)).patch == []


@given(PAIRS)
def test_both_views_are_those_of_one_walk(pair: tuple[Any, Any]) -> None:
    diff = compare(*pair)
    assert (changes(*pair), patch(*pair)) == (diff.changes, diff.patch)


@given(PAIRS)
def test_values_stand_where_the_paths_point(pair: tuple[Any, Any]) -> None:
    old, new = pair
    for change in changes(old, new):
        if change.kind == "removed":
            assert exact(resolve_pointer(old, change.path)) == exact(change.old)
        else:
            assert exact(resolve_pointer(new, change.path)) == exact(change.new)
        assert (change.old is MISSING) == (change.kind == "added")
        assert (change.new is MISSING) == (change.kind == "removed")
        if change.kind == "changed":
            assert not equal(change.old, change.new)
        if change.kind == "moved":
            assert change.path.rpartition("/")[2] == str(change.to_index)
        else:
            assert change.from_index is MISSING
            assert change.to_index is MISSING


@given(PAIRS)
def test_no_two_changes_say_the_same(pair: tuple[Any, Any]) -> None:
    found = [(change.kind, change.path) for change in changes(*pair)]
    assert len(found) == len(set(found))


@given(PAIRS)
def test_key_paths_are_as_long_as_the_pointers(pair: tuple[Any, Any]) -> None:
    for change in changes(*pair):
        assert change.path.count("/") == change.key_path.count("/")


@given(PAIRS)
def test_replayed_on_old_they_give_new(pair: tuple[Any, Any]) -> None:
    old, new = pair
    assert equal(Replay(changes(old, new)).value(old, "", ""), new)


@given(PAIRS)
def test_replayed_without_identity_keys(pair: tuple[Any, Any]) -> None:
    old, new = pair
    assert equal(Replay(changes(old, new, Identity(keys=()))).value(old, "", ""), new)


FLAT = st.dictionaries(KEYS, st.dictionaries(KEYS, SCALARS, max_size=3) | SCALARS, max_size=5)


@given(FLAT, FLAT)
def test_backwards_everything_is_turned_round(old: Any, new: Any) -> None:
    opposite = {"added": "removed", "removed": "added", "changed": "changed"}
    there = {(change.kind, change.path) for change in changes(old, new)}
    back = {(opposite[change.kind], change.path) for change in changes(new, old)}
    assert there == back


@given(FLAT, FLAT)
def test_objects_differ_where_deepdiff_says_so(old: Any, new: Any) -> None:
    # DeepDiff turns big numbers into floats: it gets every value's text instead.
    deep = DeepDiff(
        _texts(old),
        _texts(new),
        view="tree",
        threshold_to_diff_deeper=0,
        ignore_private_variables=False,
    )
    said = {
        "".join(f"/{_escape(key)}" for key in level.path(output_format="list"))
        for levels in deep.values()
        for level in levels
    }
    assert {change.path for change in changes(old, new)} == said


def _texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _texts(inner) for key, inner in value.items()}
    if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
        return f"number {Decimal(value).normalize(Context(prec=1000)) + 0}"
    return repr(value)


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


class Replay:
    """Makes new from old and the changes a person sees, knowing nothing else."""

    def __init__(self, found: tuple[Change, ...]) -> None:
        self.removed = {change.path for change in found if change.kind == "removed"}
        self.added = {change.path: change.new for change in found if change.kind == "added"}
        self.changed = {change.path: change.new for change in found if change.kind == "changed"}
        self.moved = {change.path: change.from_index for change in found if change.kind == "moved"}

    def value(self, old: Any, old_path: str, new_path: str) -> Any:
        if new_path in self.changed:
            return self.changed[new_path]
        if isinstance(old, dict):
            return self.object(old, old_path, new_path)
        if isinstance(old, list):
            return self.list(old, old_path, new_path)
        return old

    def object(self, old: dict[str, Any], old_path: str, new_path: str) -> dict[str, Any]:
        made = {}
        for key, value in old.items():
            segment = _escape(key)
            if f"{old_path}/{segment}" not in self.removed:
                made[key] = self.value(value, f"{old_path}/{segment}", f"{new_path}/{segment}")
        for path, value in self.added.items():
            parent, _, segment = path.rpartition("/")
            if path and parent == new_path:
                made[segment.replace("~1", "/").replace("~0", "~")] = value
        return made

    def list(self, old: list[Any], old_path: str, new_path: str) -> list[Any]:
        left = [i for i in range(len(old)) if f"{old_path}/{i}" not in self.removed]
        came = {path for path in self.added if path.rpartition("/")[0] == new_path and path}
        length = len(left) + len(came)
        moved = {to: self.moved.get(f"{new_path}/{to}", -1) for to in range(length)}
        stay = iter([index for index in left if index not in moved.values()])
        made = []
        for to in range(length):
            if f"{new_path}/{to}" in came:
                made.append(self.added[f"{new_path}/{to}"])
                continue
            origin = moved[to] if moved[to] >= 0 else next(stay)
            made.append(self.value(old[origin], f"{old_path}/{origin}", f"{new_path}/{to}"))
        return made
