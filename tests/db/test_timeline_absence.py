"""What an answer says of versions that are not in the store: removed, never arrived, never were."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from history import timeline
from history.entities import ROOT
from history.record import ChangeType
from history.timeline import (
    Absence,
    NoVersionError,
    OlderThanRetentionError,
    Query,
)
from history.timeline import neighbours as absence
from tests.db.screens import A1, text
from tests.db.store import HOST, T0, Store, minute

PERSON = "participant-role"
LONG_AGO = (T0 - timedelta(days=300)).isoformat()
RECENTLY = T0.isoformat()
DAY, HOUR = timedelta(days=1), timedelta(hours=1)


def newest(id: str = "A1") -> timeline.Version:
    return timeline.page(HOST, Query(entity=ROOT, id=id)).versions[0]


def lowest(id: str = "A1") -> timeline.Version:
    return timeline.page(HOST, Query(entity=ROOT, id=id)).versions[-1]


# Below the lowest version.


def test_a_second_life_does_not_hide_the_first(store: Store) -> None:
    """v0 to v6 were removed, the last of them a DELETE; v7 created the entity again."""
    store.add("A1", 7, {"createdAt": RECENTLY}, 0, type=ChangeType.CREATE)
    store.add("A1", 8, {"createdAt": RECENTLY}, 1)
    assert lowest().older is Absence.UNKNOWN
    with pytest.raises(OlderThanRetentionError):
        timeline.version(HOST, ROOT, "A1", 3)
    with pytest.raises(OlderThanRetentionError):
        timeline.at(HOST, ROOT, "A1", minute(-1))


@pytest.mark.parametrize("first", [0, 1])
def test_a_first_version_has_nothing_before_it(store: Store, first: int) -> None:
    """Some producers count from 1; a second life begins with 2 at the earliest."""
    store.add("A1", first, {}, 0, type=ChangeType.CREATE)
    assert lowest().older is None
    with pytest.raises(NoVersionError):
        timeline.at(HOST, ROOT, "A1", minute(-1))


@pytest.mark.parametrize(
    "created, why",
    [
        (-2 * DAY, Absence.REMOVED),
        (-HOUR, Absence.UNKNOWN),  # a clock that is an hour fast may have kept the first version
        (HOUR, Absence.UNKNOWN),  # one that is slow may have removed it
        (2 * DAY, Absence.NEVER_ARRIVED),
    ],
)
def test_near_the_start_of_retention_clocks_decide_nothing(
    store: Store, created: timedelta, why: Absence
) -> None:
    store.add("A1", 4, {"createdAt": (absence.kept_from() + created).isoformat()}, 0)
    assert lowest().older is why


def test_where_times_contradict_numbers_nothing_never_arrived(store: Store) -> None:
    store.add("A1", 4, {"createdAt": RECENTLY}, 0)
    store.add("A1", 5, {"createdAt": RECENTLY}, T0 - 40 * DAY)
    store.add("A1", 9, {"createdAt": RECENTLY}, 1)
    found = {
        each.version: each for each in timeline.page(HOST, Query(entity=ROOT, id="A1")).versions
    }
    assert found[4].older is Absence.UNKNOWN
    assert found[9].missing_why is Absence.UNKNOWN


# Between two versions.


def test_in_between_never_arrived_where_the_one_before_is_kept_safely(store: Store) -> None:
    store.add("A1", 0, {}, 0)
    store.add("A1", 3, {}, 1)
    assert (list(newest().missing), newest().missing_why) == ([1, 2], Absence.NEVER_ARRIVED)
    assert lowest().missing_why is None
    with pytest.raises(NoVersionError):
        timeline.version(HOST, ROOT, "A1", 2)


def test_in_between_unknown_where_the_one_before_is_about_to_leave(store: Store) -> None:
    """Version 1 was dated a little earlier than version 0, and left with its day."""
    store.add("A1", 0, {}, absence.kept_from() + HOUR)
    store.add("A1", 2, {}, 1)
    assert (list(newest().missing), newest().missing_why) == ([1], Absence.UNKNOWN)
    with pytest.raises(OlderThanRetentionError):
        timeline.version(HOST, ROOT, "A1", 1)


def test_above_the_newest_there_was_nothing(store: Store) -> None:
    store.add("A1", 0, {}, absence.kept_from() + HOUR)
    with pytest.raises(NoVersionError):
        timeline.version(HOST, ROOT, "A1", 7)


def test_the_screens_say_which_is_sure(store: Store, support: Client) -> None:
    store.add("A1", 0, {}, absence.kept_from() + HOUR)
    store.add("A1", 3, {"a": 1}, 1)
    store.add("A1", 6, {"a": 2}, 2)
    said = text(support.get(A1))
    assert "Версии 4–5 не поступали" in said
    assert "Версий 1–2 в хранилище нет: удалены по сроку хранения или не поступали" in said


# At a moment.


def test_before_its_birth_there_was_nothing(store: Store) -> None:
    """Created 300 days ago, so that its first versions were removed; before that it was not."""
    store.add("A1", 5, {"createdAt": LONG_AGO}, 0)
    with pytest.raises(NoVersionError):
        timeline.at(HOST, ROOT, "A1", T0 - 301 * DAY)
    with pytest.raises(NoVersionError):
        timeline.application_at(HOST, "A1", T0 - 301 * DAY)
    with pytest.raises(OlderThanRetentionError):
        timeline.at(HOST, ROOT, "A1", T0 - 299 * DAY)


def test_a_child_whose_version_of_then_was_removed_is_named(store: Store) -> None:
    store.add("A1", 0, {}, 0)
    store.add("P1", 0, {}, 1, entity=PERSON)
    store.add("P2", 4, {"createdAt": LONG_AGO}, 60, entity=PERSON)  # removed
    store.add("P3", 4, {}, 60, entity=PERSON)  # unknown
    store.add("P4", 0, {}, 60, entity=PERSON)  # not there yet
    store.add("P5", 4, {"createdAt": minute(50).isoformat()}, 60, entity=PERSON)  # created later
    store.add("P6", 4, {"createdAt": minute(-50).isoformat()}, 60, entity=PERSON)  # lost
    store.add("P7", 4, {}, 60, entity=PERSON, application="B1")  # of another application
    found = timeline.application_at(HOST, "A1", minute(30))
    assert [child.id for child in found.children] == ["P1"]
    assert [(part.entity.name, part.id, part.why) for part in found.missing] == [
        (PERSON, "P2", Absence.REMOVED),
        (PERSON, "P3", Absence.UNKNOWN),
        (PERSON, "P6", Absence.NEVER_ARRIVED),
    ]
    assert timeline.application_at(HOST, "A1", minute(90)).missing == ()


def test_an_application_of_which_only_a_child_is_left(store: Store) -> None:
    store.add("A1", 5, {"createdAt": LONG_AGO}, 60)
    store.add("P1", 0, {}, 1, entity=PERSON)
    found = timeline.application_at(HOST, "A1", minute(30))
    assert found.application is None
    assert [(part.id, part.why) for part in found.missing] == [("A1", Absence.REMOVED)]


# Over the API.


def code(response: Any) -> str:
    assert response.status_code == 404, response.content
    return str(json.loads(response.content)["error"]["code"])


def test_the_codes_of_an_application_at_a_moment(store: Store, auditor: Client) -> None:
    store.add("A1", 5, {"createdAt": LONG_AGO}, 0)
    store.add("B1", 0, {}, 0)
    address = "/api/v1/applications/{}/at?time={}"
    yesterday, last_year = ((T0 - days).strftime("%Y-%m-%d") for days in (DAY, 400 * DAY))
    assert code(auditor.get(address.format("A1", yesterday))) == "older_than_retention"
    assert code(auditor.get(address.format("B1", yesterday))) == "not_found"
    assert code(auditor.get(address.format("B1", last_year))) == "not_found"
    assert code(auditor.get(address.format("A1", last_year))) == "not_found"
    assert code(auditor.get(address.format("nobody", last_year))) == "not_found"


def test_an_answer_names_what_is_missing_and_why(store: Store, auditor: Client) -> None:
    store.add("A1", 0, {}, 0)
    store.add("A1", 3, {}, 1)
    store.add("P2", 4, {"createdAt": LONG_AGO}, 60, entity=PERSON)
    moment = minute(30).replace(tzinfo=None).isoformat()
    found = json.loads(auditor.get(f"/api/v1/applications/A1/at?time={moment}").content)["data"]
    assert found["missing"] == [{"kind": PERSON, "id": "P2", "reason": "removedByRetention"}]
    assert found["application"]["missingVersions"] == [1, 2]
    assert found["application"]["missingReason"] == "neverArrived"
    assert found["uncertain"] == []


def test_a_state_says_which_versions_may_have_come_before_its_moment(
    store: Store, auditor: Client
) -> None:
    store.add("A1", 0, {}, 0)
    store.add("A1", 3, {}, 60)
    moment = minute(30).replace(tzinfo=None).isoformat()
    gap = {"missingVersions": [1, 2], "missingCount": 2, "missingReason": "neverArrived"}
    for address in ("applications/A1/at", f"history/{ROOT.name}/A1/at"):
        found = json.loads(auditor.get(f"/api/v1/{address}?time={moment}").content)["data"]
        assert found["uncertain"] == [{"kind": ROOT.name, "id": "A1", **gap}]
