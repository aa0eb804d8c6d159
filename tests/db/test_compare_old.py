"""`annals compare-old` finds and names every type of difference, and prints no stored values."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from annals.access.models import JournalEntry
from annals.management import comparison
from history.common import clock
from history.kinds.entities import BY_NAME
from history.models import FieldLabel
from tests.command_shapes import parse_shaped
from tests.db.commands import run_command
from tests.db.store import Store, minute
from tests.old_service import OldServiceServer

PERSON = BY_NAME["participant-role"]
VALUE = "17.9-of-somebody"


def run_compare_old(*arguments: str) -> tuple[int, dict[str, Any]]:
    """Run `annals compare-old --json`, and return the exit code and the output.

    Check that the output does not reveal the stored value VALUE.
    """
    ended = run_command("compare-old", *arguments, "--json")
    assert VALUE not in ended.out
    return ended.code, parse_shaped("compare-old", ended.out)


@pytest.fixture
def old_service(store: Store, old: OldServiceServer) -> OldServiceServer:
    """Store equal versions of the application A1 and of one child in Annals and the old service."""
    for add_version in (store.add, old.add_version):
        add_version(
            "A1", 0, {"rate": VALUE, "parts": [{"pid": "1", "n": 1}]}, minute(0), author=None
        )
        add_version("A1", 1, '{"rate": 1.50}', minute(1), author="x.y")
    old.versions = [type(item)(**{**item.__dict__, "client": "top-crm"}) for item in old.versions]
    store.add("R1", 0, {"fullName": VALUE}, minute(2), entity=PERSON)
    old.add_version(
        "R1",
        0,
        {"fullName": VALUE},
        minute(2),
        kind=PERSON.name,
        application="A1",
        client="top-crm",
        author="m.ivanov",
    )
    return old


def test_compare_old_succeeds_when_applications_are_equal(old_service: OldServiceServer) -> None:
    code, actual = run_compare_old()
    assert (code, actual["ok"], actual["applications"], actual["listed"]) == (0, True, 1, [])
    assert actual["versions"]["equal"] == 3


def test_compare_old_reports_every_kind_of_difference(
    old_service: OldServiceServer, store: Store
) -> None:
    remaining = clock.now() - timedelta(days=settings.ANNALS.retention_days + 2)
    store.add("A1", 2, {"rate": VALUE, "parts": [{"pid": "1", "n": 1}]}, 5, client="top-old")
    old_service.add_version(
        "A1", 2, {"rate": "2", "parts": [{"pid": "1", "n": 2}]}, minute(6), author="other"
    )
    store.add("A1", 3, {}, 7)
    old_service.add_version("A1", 4, {}, minute(8))
    old_service.add_version("R2", 7, {}, remaining, kind=PERSON.name, application="A1")
    old_service.add_version("R3", 0, {}, clock.now(), kind=PERSON.name, application="A1")
    code, actual = run_compare_old("--reason", "the switch")
    assert code == 1
    assert actual["versions"] == {
        "equal": 3,
        "different": 1,
        "missingHere": 1,
        "missingThere": 1,
        "older": 1,
        "tooNew": 1,
    }
    assert actual["otherTimes"] == 1
    listed = {(item["id"], item["version"]): item for item in actual["listed"]}
    assert listed["A1", 2]["paths"] == ["author", "/rate", "/parts/[pid=1]/n"]
    assert listed["A1", 4]["verdict"] == "missingHere"
    entry = JournalEntry.objects.latest("id")
    assert (entry.reason, "compare-old" in entry.query) == ("the switch", True)


def test_compare_old_finds_document_that_only_the_old_service_has(
    old_service: OldServiceServer, tmp_path: Path
) -> None:
    old_service.add_version("B1", 0, {"rate": VALUE}, minute(0))
    file = tmp_path / "ids"
    file.write_text("A1\nB1\nB9\n")
    code, actual = run_compare_old("--applications", str(file))
    assert (code, actual["applications"]) == (1, 3)
    assert [item["id"] for item in actual["listed"]] == ["B1"]


def test_compare_old_fails_when_listed_ids_exist_nowhere(
    old_service: OldServiceServer, tmp_path: Path
) -> None:
    file = tmp_path / "ids"
    file.write_text("typo 1\ntypo 2\n")
    code, actual = run_compare_old("--applications", str(file))
    assert (code, actual["ok"], actual["applications"], actual["nowhere"]) == (1, False, 2, 2)
    file.write_text("\ufeff\r\n\n")
    ended = run_command("compare-old", "--applications", str(file))
    assert (ended.code, "has no id" in ended.err) == (2, True)


def test_compare_old_prints_paths_of_differences_without_values(
    old_service: OldServiceServer, store: Store
) -> None:
    store.add("A1", 2, {"rate": VALUE}, 5, client="top-old", author="o.stara")
    old_service.add_version("A1", 2, {"rate": "other"}, minute(5))
    text = run_command("compare-old").out
    assert "different: product-instance A1 version 2: /rate\n" in text
    assert "1 version is missing here or differs." in text
    assert VALUE not in text


def test_compare_old_masks_marked_values_in_paths(
    old_service: OldServiceServer, store: Store
) -> None:
    """A path can name an item of a list by the id of the item, which can be a marked field."""
    FieldLabel.objects.create(entity="", path="/cards/*/id", sensitive=True)
    store.add("A1", 2, {"cards": [{"id": VALUE, "n": 1}]}, 5, client="top-old")
    old_service.add_version(
        "A1", 2, {"cards": [{"id": VALUE, "n": 2}]}, minute(5), author="m.ivanov"
    )
    _, actual = run_compare_old()  # fails if VALUE is in the output
    [path] = actual["listed"][0]["paths"]
    assert path.startswith("/cards/[id=masked:")
    assert path.endswith("]/n")


def test_compare_old_fails_when_old_service_fails(
    old_service: OldServiceServer, tmp_path: Path
) -> None:
    old_service.status = 503
    assert run_compare_old()[0] == 1
    file = tmp_path / "ids"
    file.write_text("\n".join(f"A{number}" for number in range(20)))
    ended = run_command("compare-old", "--applications", str(file))
    assert (ended.code, "failed 5 times in a row" in ended.err) == (2, True)
    assert len(old_service.requests) == 1 + 5


def test_compare_old_fails_when_no_version_is_in_both_services(
    store: Store, old: OldServiceServer
) -> None:
    """The store is empty, or the old service knows none of the applications."""
    assert run_compare_old()[0] == 1
    store.add("A1", 0, {}, 0)
    code, actual = run_compare_old()
    assert (code, actual["ok"], actual["versions"]["missingThere"]) == (1, False, 1)
    text = run_command("compare-old").out
    assert "nothing was proved" in text
    assert "Nothing is missing" not in text


def test_compare_old_chooses_same_applications_for_same_seed(store: Store) -> None:
    for number in range(300):
        store.add(f"A{number:03}", 0, {"text": "x" * 2000}, 0)
    first = comparison.sample_applications(20, 1)
    assert len(set(first)) == 20
    assert first == comparison.sample_applications(20, 1)
    assert first != comparison.sample_applications(20, 2)
    assert len(comparison.sample_applications(1000, 1)) == 300
