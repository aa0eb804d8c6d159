"""The pairs that are hard on a comparison, small: correct, and with no more changes than needed."""

from typing import Any

import jsonpatch
import pytest

from benchmarks.diff_shapes import SHAPES
from history.diff import changes, patch
from history.documents.exactjson import dumps
from tests.unit.diff_documents import exact


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("count", [1, 7, 60])
def test_the_patch_gives_the_new_one_and_is_no_longer_than_it(name: str, count: int) -> None:
    old, new = SHAPES[name](count)
    operations = patch(old, new)
    assert exact(jsonpatch.JsonPatch(operations).apply(old)) == exact(new)
    assert len(dumps(operations)) <= len(dumps([{"op": "replace", "path": "", "value": new}]))


@pytest.mark.parametrize("name", SHAPES)
def test_the_patch_is_no_longer_than_that_of_jsonpatch(name: str) -> None:
    old, new = SHAPES[name](60)
    assert len(dumps(patch(old, new))) <= len(dumps(jsonpatch.make_patch(old, new).patch))


@pytest.mark.parametrize(
    "name, kinds",
    [
        ("one field next to the list", {"changed": 1}),
        ("list: insert at the front", {"added": 1}),
        ("list: one removed", {"removed": 1}),
        ("list: every item changed", {"changed": 60}),
        ("list: total rewrite", {"added": 60, "removed": 60}),
        ("no keys: insert at the front", {"added": 1}),
        ("nested 200 deep", {"changed": 1}),
    ],
)
def test_as_many_changes_as_there_are(name: str, kinds: dict[str, int]) -> None:
    found: dict[str, int] = {}
    for change in changes(*SHAPES[name](60)):
        found[change.kind] = found.get(change.kind, 0) + 1
    assert found == kinds


def test_a_shuffle_is_moves_only_and_the_fewest() -> None:
    old: list[dict[str, Any]] = [{"pid": str(number)} for number in range(9)]
    order = [3, 0, 1, 8, 2, 4, 7, 6, 5]  # 0 1 2 4 7 (or 6, 5) stay
    found = changes(old, [old[number] for number in order])
    assert [change.kind for change in found] == ["moved"] * 4
