"""`annals compare-old`: every kind of difference is found and named, and no value is printed."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from annals.access.models import JournalEntry
from annals.management import comparing
from history.base import clock
from history.entities import BY_NAME
from history.models import FieldLabel
from tests.db.commands import command
from tests.db.store import Store, minute
from tests.old_service import OldService
from tests.shape import shaped

PERSON = BY_NAME["participant-role"]
VALUE = "17.9-of-somebody"


def run(*arguments: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and what --json prints."""
    ended = command("compare-old", *arguments, "--json")
    assert VALUE not in ended.out
    return ended.code, shaped("compare-old", ended.out)


@pytest.fixture
def both(store: Store, old: OldService) -> OldService:
    """A1 and its child, the same in both."""
    for side in (store, old):
        side.add("A1", 0, {"rate": VALUE, "parts": [{"pid": "1", "n": 1}]}, minute(0), author=None)
        side.add("A1", 1, '{"rate": 1.50}', minute(1), author="x.y")
    old.held = [type(each)(**{**each.__dict__, "client": "top-crm"}) for each in old.held]
    store.add("R1", 0, {"fullName": VALUE}, minute(2), entity=PERSON)
    old.add("R1", 0, {"fullName": VALUE}, minute(2), kind=PERSON.name, application="A1",
            client="top-crm", author="m.ivanov")  # fmt: skip
    return old


def test_equal_applications_speak_for_the_switch(both: OldService) -> None:
    code, found = run()
    assert (code, found["ok"], found["applications"], found["listed"]) == (0, True, 1, [])
    assert found["versions"]["equal"] == 3


def test_every_difference_is_found(both: OldService, store: Store) -> None:
    kept = clock.now() - timedelta(days=settings.ANNALS.retention_days + 2)
    store.add("A1", 2, {"rate": VALUE, "parts": [{"pid": "1", "n": 1}]}, 5, client="top-old")
    both.add("A1", 2, {"rate": "2", "parts": [{"pid": "1", "n": 2}]}, minute(6), author="other")
    store.add("A1", 3, {}, 7)
    both.add("A1", 4, {}, minute(8))
    both.add("R2", 7, {}, kept, kind=PERSON.name, application="A1")
    both.add("R3", 0, {}, clock.now(), kind=PERSON.name, application="A1")
    code, found = run("--reason", "the switch")
    assert code == 1
    assert found["versions"] == {
        "equal": 3, "different": 1, "missingHere": 1, "missingThere": 1, "older": 1, "tooNew": 1
    }  # fmt: skip
    assert found["otherTimes"] == 1
    listed = {(each["id"], each["version"]): each for each in found["listed"]}
    assert listed["A1", 2]["paths"] == ["author", "/rate", "/parts/[pid=1]/n"]
    assert listed["A1", 4]["verdict"] == "missingHere"
    entry = JournalEntry.objects.latest("id")
    assert (entry.reason, "compare-old" in entry.query) == ("the switch", True)


def test_a_document_that_only_the_old_service_has(both: OldService, tmp_path: Path) -> None:
    both.add("B1", 0, {"rate": VALUE}, minute(0))
    file = tmp_path / "ids"
    file.write_text("A1\nB1\nB9\n")
    code, found = run("--applications", str(file))
    assert (code, found["applications"]) == (1, 3)
    assert [each["id"] for each in found["listed"]] == ["B1"]


def test_a_list_with_wrong_ids_is_no_proof(both: OldService, tmp_path: Path) -> None:
    file = tmp_path / "ids"
    file.write_text("typo 1\ntypo 2\n")
    code, found = run("--applications", str(file))
    assert (code, found["ok"], found["applications"], found["nowhere"]) == (1, False, 2, 2)
    file.write_text("\ufeff\r\n\n")
    ended = command("compare-old", "--applications", str(file))
    assert (ended.code, "has no id" in ended.err) == (2, True)


def test_the_text_says_where_and_never_what(both: OldService, store: Store) -> None:
    store.add("A1", 2, {"rate": VALUE}, 5, client="top-old", author="o.stara")
    both.add("A1", 2, {"rate": "other"}, minute(5))
    said = command("compare-old").out
    assert "different: product-instance A1 version 2: /rate\n" in said
    assert "1 version is missing here or differs." in said
    assert VALUE not in said


def test_a_path_has_no_marked_value(both: OldService, store: Store) -> None:
    """The items of a list are told apart by their id, which may be marked."""
    FieldLabel.objects.create(entity="", path="/cards/*/id", sensitive=True)
    store.add("A1", 2, {"cards": [{"id": VALUE, "n": 1}]}, 5, client="top-old")
    both.add("A1", 2, {"cards": [{"id": VALUE, "n": 2}]}, minute(5), author="m.ivanov")
    _, found = run()  # looks for VALUE itself
    [path] = found["listed"][0]["paths"]
    assert path.startswith("/cards/[id=masked:")
    assert path.endswith("]/n")


def test_nothing_is_proved_where_the_old_service_fails(both: OldService, tmp_path: Path) -> None:
    both.status = 503
    assert run()[0] == 1
    file = tmp_path / "ids"
    file.write_text("\n".join(f"A{number}" for number in range(20)))
    ended = command("compare-old", "--applications", str(file))
    assert (ended.code, "failed 5 times in a row" in ended.err) == (2, True)
    assert len(both.asked) == 1 + 5


def test_nothing_is_proved_where_no_version_is_in_both(store: Store, old: OldService) -> None:
    """An empty store; an old service that knows none of the applications."""
    assert run()[0] == 1
    store.add("A1", 0, {}, 0)
    code, found = run()
    assert (code, found["ok"], found["versions"]["missingThere"]) == (1, False, 1)
    said = command("compare-old").out
    assert "nothing was proved" in said
    assert "Nothing is missing" not in said


def test_a_seed_gives_the_same_applications_again(store: Store) -> None:
    for number in range(300):
        store.add(f"A{number:03}", 0, {"text": "x" * 2000}, 0)
    first = comparing.applications(20, 1)
    assert len(set(first)) == 20
    assert first == comparing.applications(20, 1)
    assert first != comparing.applications(20, 2)
    assert len(comparing.applications(1000, 1)) == 300
