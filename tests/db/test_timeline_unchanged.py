"""Blame leaves out the versions that changed nothing of what is left, and says the same."""

import json
import random
from typing import Any

import pytest

from history import timeline
from history.documents.jsonb import to_store
from history.entities import BY_NAME, ROOT
from history.labels import forget
from history.models import FieldLabel
from history.timeline import Reader
from history.timeline.unchanged import Unchanged
from tests.db.store import HOST, Store, queries

VALUES: list[Any] = [
    *("x", "y", "", None, True, False, 1, 1.0, 0, [], {}, [1], [1, 1], ["x", "y"], ["y", "x"]),
    *({"k": 1}, {"k": 1, "l": None}, {"k": {}}, [{"pid": "a", "n": 1}, {"pid": "b", "n": 2}]),
    *([{"pid": "b", "n": 2}, {"pid": "a", "n": 1}], {'"\\{},': ['"\\{},']}, "\0", {"\0": 1}),
]
NAMES = ["rate", "who", "tags", '"a"\\', "{}", "~/"]


@pytest.fixture(autouse=True, params=[1, 2])
def small_batches(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """1: as where documents are large."""
    monkeypatch.setattr("history.timeline.budget.BATCH", request.param)


def fill(store: Store, id: str, seed: int) -> None:
    """A history of 30 versions, each with a change or two, some in nested places."""
    chosen = random.Random(seed)
    state: dict[str, Any] = {name: chosen.choice(VALUES) for name in NAMES}
    state["inner"] = {name: chosen.choice(VALUES) for name in NAMES}
    for version in range(30):
        for _ in range(chosen.randrange(3)):
            place = state if chosen.random() < 0.5 else state["inner"]
            place[chosen.choice(NAMES[:3])] = chosen.choice(VALUES)
        if chosen.random() < 0.1:
            state.pop("extra", None) or state.update(extra=1)
        text = to_store(json.dumps(state, ensure_ascii=chosen.random() < 0.5).encode()).decode()
        store.add(id, version, text, version)


def blamed(id: str) -> list[tuple[str, int, bool]]:
    found = timeline.blame(HOST, ROOT, id).leaves
    return sorted((leaf.path, leaf.origin.version, leaf.origin.exact) for leaf in found)


def in_full(id: str) -> list[tuple[str, int, bool]]:
    """The same, with every version read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Unchanged, "skip", lambda *_: None)
        return blamed(id)


@pytest.mark.parametrize("seed", range(12))
def test_as_if_every_version_were_read(store: Store, seed: int) -> None:
    fill(store, "A1", seed)
    assert blamed("A1") == in_full("A1")


@pytest.mark.parametrize("seed", range(4))
def test_masked_parts_too(store: Store, seed: int) -> None:
    for path in ("/who", "/inner/tags", "/inner/rate"):
        FieldLabel.objects.create(path=path, russian=path, sensitive=True)
    forget()
    fill(store, "A1", seed)
    assert blamed("A1") == in_full("A1")


# What an older value contains of a newer one says nothing here.
CONTAINED = [
    *(([1], [1, 1]), ([1], []), ({"k": 1}, {}), ({"k": [2]}, {"k": []})),
    *(([[1]], {"0": [1]}), ([{}], {"0": {}}), ({"k": [[1]]}, {"k": {"0": [1]}})),
]


@pytest.mark.parametrize(("old", "new"), CONTAINED)
def test_a_value_that_an_older_one_contains_is_another_one(
    store: Store, old: Any, new: Any
) -> None:
    for version in range(20):
        store.add("A1", version, {"who": old if version < 10 else new}, version)
    assert blamed("A1") == in_full("A1")
    assert {version for _, version, _ in blamed("A1")} >= {10}


@pytest.mark.parametrize(("old", "new"), [*CONTAINED, ({"k": 1, "l": 2}, {"k": 1})])
def test_so_is_a_masked_one(store: Store, old: Any, new: Any) -> None:
    FieldLabel.objects.create(path="/who", russian="Who", sensitive=True)
    forget()
    for version in range(20):
        store.add("A1", version, {"who": old if version < 10 else new}, version)
    assert blamed("A1") == in_full("A1") == [("/who", 10, True)]


def test_what_does_not_change_is_not_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in range(60):
        store.add("A1", version, {"rate": version, "pid": "x", "who": version // 30}, version)
    monkeypatch.setattr("history.timeline.budget.BATCH", 2)
    with queries(monkeypatch) as said:
        assert blamed("A1") == [("/pid", 0, True), ("/rate", 59, True), ("/who", 30, True)]
    assert sum("row_number()" in each for each in said) == 3


def test_the_applications_of_versions_that_are_left_out_are_noted(store: Store) -> None:
    for version in range(20):
        store.add(
            "R1", version, {"pid": "x"}, version, entity="participant-role",
            application="A2" if version == 10 else "A1",
        )  # fmt: skip
    reader = Reader.on_host()
    timeline.blame(reader, BY_NAME["participant-role"], "R1")
    assert set(reader.viewer.look.applications) == {"A1", "A2"}
