"""Why a version is not in the store: removed, never arrived, or never existed."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from history import timeline
from history.documents.record import ChangeType
from history.kinds.entities import ROOT
from history.store.versions import CLOCK_TOLERANCE, EntityRef, VersionKey
from history.timeline import (
    Absence,
    NotFoundError,
    NoVersionError,
    OlderThanRetentionError,
    TimelineQuery,
    absence,
)
from tests.db.screens import A1, read_text
from tests.db.store import HOST, T0, Store, minute

PERSON = "participant-role"
LONG_AGO = (T0 - timedelta(days=300)).isoformat()
RECENTLY = T0.isoformat()
DAY, HOUR = timedelta(days=1), timedelta(hours=1)


def fetch_newest(id: str = "A1") -> timeline.Version:
    return timeline.fetch_page(HOST, TimelineQuery(entity=ROOT, id=id)).versions[0]


def fetch_lowest(id: str = "A1") -> timeline.Version:
    return timeline.fetch_page(HOST, TimelineQuery(entity=ROOT, id=id)).versions[-1]


# Versions below the lowest stored version.


def test_recreated_document_still_reports_removed_older_versions(store: Store) -> None:
    """Retention removed the versions 0 to 6, and version 6 was a deletion. Version 7 created the
    document again."""
    store.add("A1", 7, {"createdAt": RECENTLY}, 0, type=ChangeType.CREATE)
    store.add("A1", 8, {"createdAt": RECENTLY}, 1)
    assert fetch_lowest().nothing_older_reason is Absence.UNKNOWN
    with pytest.raises(OlderThanRetentionError):
        timeline.fetch_version(HOST, ROOT, "A1", 3)
    with pytest.raises(OlderThanRetentionError):
        timeline.fetch_version_at(HOST, ROOT, "A1", minute(-1))


@pytest.mark.parametrize("first", [0, 1])
def test_timeline_reports_no_missing_versions_before_the_version_that_created_the_document(
    store: Store, first: int
) -> None:
    """Some producers number the first version 1 instead of 0. A CREATE with number 2 or more is not
    the first version: it creates a deleted document again."""
    store.add("A1", first, {}, 0, type=ChangeType.CREATE)
    assert fetch_lowest().nothing_older_reason is None
    with pytest.raises(NoVersionError):
        timeline.fetch_version_at(HOST, ROOT, "A1", minute(-1))


@pytest.mark.parametrize(
    "created, expected",
    [
        (-2 * DAY, Absence.REMOVED),
        # With a clock one hour fast, the first version may not have expired.
        (
            -HOUR,
            Absence.UNKNOWN,
        ),
        (HOUR, Absence.UNKNOWN),  # with a clock one hour slow, the first version may have expired
        (2 * DAY, Absence.NEVER_ARRIVED),
    ],
)
def test_reason_for_missing_versions_is_unknown_when_creation_is_near_start_of_retention(
    store: Store, created: timedelta, expected: Absence
) -> None:
    store.add("A1", 4, {"createdAt": (absence.get_retention_start() + created).isoformat()}, 0)
    assert fetch_lowest().nothing_older_reason is expected


def test_reason_for_missing_versions_is_unknown_when_higher_numbers_have_earlier_moments(
    store: Store,
) -> None:
    store.add("A1", 4, {"createdAt": RECENTLY}, 0)
    store.add("A1", 5, {"createdAt": RECENTLY}, T0 - 40 * DAY)
    store.add("A1", 9, {"createdAt": RECENTLY}, 1)
    versions = {
        version.version: version
        for version in timeline.fetch_page(HOST, TimelineQuery(entity=ROOT, id="A1")).versions
    }
    assert versions[4].nothing_older_reason is Absence.UNKNOWN
    assert versions[9].missing_reason is Absence.UNKNOWN


# Versions between two stored versions.


def test_missing_version_is_shown_as_never_arrived_when_version_before_it_is_far_from_expiry(
    store: Store,
) -> None:
    store.add("A1", 0, {}, 0)
    store.add("A1", 3, {}, 1)
    assert (list(fetch_newest().missing), fetch_newest().missing_reason) == (
        [1, 2],
        Absence.NEVER_ARRIVED,
    )
    assert fetch_lowest().missing_reason is None
    with pytest.raises(NoVersionError):
        timeline.fetch_version(HOST, ROOT, "A1", 2)


def test_reason_for_missing_version_is_unknown_when_version_before_it_is_about_to_expire(
    store: Store,
) -> None:
    """Clocks differ, so the moment of the missing version 1 can be earlier than that of version 0,
    and on a day that retention has removed. Version 1 either expired or never arrived."""
    store.add("A1", 0, {}, absence.get_retention_start() + HOUR)
    store.add("A1", 2, {}, 1)
    assert (list(fetch_newest().missing), fetch_newest().missing_reason) == ([1], Absence.UNKNOWN)
    with pytest.raises(OlderThanRetentionError):
        timeline.fetch_version(HOST, ROOT, "A1", 1)


def test_version_number_above_the_newest_version_is_not_found(store: Store) -> None:
    store.add("A1", 0, {}, absence.get_retention_start() + HOUR)
    with pytest.raises(NoVersionError):
        timeline.fetch_version(HOST, ROOT, "A1", 7)


def test_screen_distinguishes_certain_and_uncertain_reasons_for_missing_versions(
    store: Store, support: Client
) -> None:
    store.add("A1", 0, {}, absence.get_retention_start() + HOUR)
    store.add("A1", 3, {"a": 1}, 1)
    store.add("A1", 6, {"a": 2}, 2)
    page_text = read_text(support.get(A1))
    assert "Versions 4–5 never arrived" in page_text
    assert "Versions 1–2 are not in the store: removed by age, or never arrived" in page_text


# The state at a moment.


def test_document_has_no_version_at_moment_before_its_creation(store: Store) -> None:
    """The document was created 300 days ago, and retention removed its first versions. Before its
    creation it did not exist."""
    store.add("A1", 5, {"createdAt": LONG_AGO}, 0)
    with pytest.raises(NoVersionError):
        timeline.fetch_version_at(HOST, ROOT, "A1", T0 - 301 * DAY)
    with pytest.raises(NoVersionError):
        timeline.fetch_application_at(HOST, "A1", T0 - 301 * DAY)
    with pytest.raises(OlderThanRetentionError):
        timeline.fetch_version_at(HOST, ROOT, "A1", T0 - 299 * DAY)


def test_state_at_moment_says_which_children_lack_a_version_and_why(store: Store) -> None:
    store.add("A1", 0, {}, 0)
    store.add("P1", 0, {}, 1, entity=PERSON)
    store.add("P2", 4, {"createdAt": LONG_AGO}, 60, entity=PERSON)  # removed
    store.add("P3", 4, {}, 60, entity=PERSON)  # unknown
    store.add("P4", 0, {}, 60, entity=PERSON)  # not there yet
    store.add("P5", 4, {"createdAt": minute(50).isoformat()}, 60, entity=PERSON)  # created later
    store.add("P6", 4, {"createdAt": minute(-50).isoformat()}, 60, entity=PERSON)  # lost
    store.add("P7", 4, {}, 60, entity=PERSON, application="B1")  # of another application
    state = timeline.fetch_application_at(HOST, "A1", minute(30))
    assert [child.id for child in state.children] == ["P1"]
    assert [(part.entity.name, part.id, part.reason) for part in state.missing] == [
        (PERSON, "P2", Absence.REMOVED),
        (PERSON, "P3", Absence.UNKNOWN),
        (PERSON, "P6", Absence.NEVER_ARRIVED),
    ]
    members = state.members | {
        EntityRef(ROOT, f"R{n}"): [VersionKey(0, minute(1))] for n in range(9)
    }
    # The store does not have these nine members any more.
    state = timeline.fetch_application_at(HOST, "A1", minute(30), members=members)
    assert [part.id for part in state.missing[3:]] == [f"R{n}" for n in range(9)]
    assert timeline.fetch_application_at(HOST, "A1", minute(90)).missing == ()


def test_state_at_moment_reports_application_as_missing_when_retention_removed_its_version(
    store: Store,
) -> None:
    """The store has a later version of the application, and a version of a child."""
    store.add("A1", 5, {"createdAt": LONG_AGO}, 60)
    store.add("P1", 0, {}, 1, entity=PERSON)
    state = timeline.fetch_application_at(HOST, "A1", minute(30))
    assert state.application is None
    assert [(part.id, part.reason) for part in state.missing] == [("A1", Absence.REMOVED)]


# Answers of the API.


def read_error_code(response: Any) -> str:
    assert response.status_code == 404, response.content
    return str(json.loads(response.content)["error"]["code"])


def test_error_for_state_at_moment_distinguishes_removed_from_nonexistent_application(
    store: Store, auditor: Client
) -> None:
    store.add("A1", 5, {"createdAt": LONG_AGO}, 0)
    store.add("B1", 0, {}, 0)
    address = "/api/v1/applications/{}/at?time={}"
    yesterday, last_year = ((T0 - days).strftime("%Y-%m-%d") for days in (DAY, 400 * DAY))
    assert read_error_code(auditor.get(address.format("A1", yesterday))) == "older_than_retention"
    assert read_error_code(auditor.get(address.format("B1", yesterday))) == "not_found"
    assert read_error_code(auditor.get(address.format("B1", last_year))) == "not_found"
    assert read_error_code(auditor.get(address.format("A1", last_year))) == "not_found"
    assert read_error_code(auditor.get(address.format("nobody", last_year))) == "not_found"


def test_state_answer_lists_missing_documents_with_reasons(store: Store, auditor: Client) -> None:
    store.add("A1", 0, {}, 0)
    store.add("A1", 3, {}, 1)
    store.add("P2", 4, {"createdAt": LONG_AGO}, 60, entity=PERSON)
    moment = minute(30).replace(tzinfo=None).isoformat()
    state = json.loads(auditor.get(f"/api/v1/applications/A1/at?time={moment}").content)["data"]
    assert state["missing"] == [{"kind": PERSON, "id": "P2", "reason": "removedByRetention"}]
    assert state["application"]["missingVersions"] == [1, 2]
    assert state["application"]["missingReason"] == "neverArrived"
    assert state["uncertain"] == []


def test_state_at_moment_is_uncertain_when_a_missing_version_may_be_before_the_moment(
    store: Store, auditor: Client
) -> None:
    store.add("A1", 0, {}, 0)
    store.add("A1", 3, {}, 60)
    moment = minute(30).replace(tzinfo=None).isoformat()
    gap = {"missingVersions": [1, 2], "missingCount": 2, "missingReason": "neverArrived"}
    for address in ("applications/A1/at", f"history/{ROOT.name}/A1/at"):
        state = json.loads(auditor.get(f"/api/v1/{address}?time={moment}").content)["data"]
        assert state["uncertain"] == [{"kind": ROOT.name, "id": "A1", **gap, "quarantined": []}]


# Random histories with known versions. Two clocks differ by at most a day, versions get lost,
# retention removes versions dated before its start, and documents are deleted and created again.
MAX_SKEW_HOURS = int(CLOCK_TOLERANCE / HOUR / 2)  # the most hours by which a clock is wrong
FIRST_HOUR, LAST_HOUR = -150, 50  # hours from the start of retention


@dataclass(frozen=True)
class PlannedEvent:
    """A random change of the document in a test. The numeric fields count hours."""

    after: int  # since the previous change
    skew: int  # by how much the clock of the service is fast
    born: int  # by how much the clock that gives createdAt is fast
    arrives: bool  # whether the version arrives in Annals
    delete: bool  # whether the change deletes the document, if the document exists


@dataclass(frozen=True)
class PlannedVersion:
    """A version that a producer made, whether or not the store has it."""

    number: int
    moment: datetime  # the true one
    dated: datetime  # the moment by the clock of the service
    type: ChangeType
    created: datetime
    arrives: bool


SKEW = st.sampled_from([-MAX_SKEW_HOURS, 0, MAX_SKEW_HOURS]) | st.integers(
    -MAX_SKEW_HOURS, MAX_SKEW_HOURS
)
EVENTS = st.lists(
    st.builds(
        PlannedEvent,
        st.integers(0, 3) | st.integers(0, 60) | st.just(5 * 24),
        SKEW,
        SKEW,
        st.integers(0, 3).map(lambda number: number > 0),
        st.integers(0, 5).map(lambda number: number == 0),
    ),
    min_size=1,
    max_size=9,
)


def make_history(events: list[PlannedEvent], begin: int, start: datetime) -> list[PlannedVersion]:
    """Return the versions that these events make.

    Args:
        begin: When the history begins, in hours after the start of retention. Can be negative.
        start: The start of retention.
    """
    history: list[PlannedVersion] = []
    moment, created, deleted = start + begin * HOUR, start, True
    for number, event in enumerate(events):
        moment += event.after * HOUR
        dated = moment + event.skew * HOUR
        type = ChangeType.DELETE if event.delete and not deleted else ChangeType.UPDATE
        if deleted:
            type, created = ChangeType.CREATE, moment + event.born * HOUR
        deleted = type is ChangeType.DELETE
        history.append(PlannedVersion(number, moment, dated, type, created, event.arrives))
    return history


def select_kept(change: PlannedVersion, start: datetime) -> bool:
    return change.arrives and change.dated >= start


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    EVENTS,
    st.integers(-MAX_SKEW_HOURS, MAX_SKEW_HOURS) | st.integers(FIRST_HOUR, LAST_HOUR),
    st.booleans(),
)
def test_reason_for_missing_versions_is_correct_for_any_history(
    store: Store, events: list[PlannedEvent], begin: int, with_created_at: bool
) -> None:
    start = absence.get_retention_start()
    history = make_history(events, begin, start)
    with transaction.atomic():
        for change in history:
            if select_kept(change, start):
                data = {"createdAt": change.created.isoformat()} if with_created_at else {}
                store.add("A1", change.number, data, change.dated, type=change.type)
        if any(select_kept(change, start) for change in history):
            _check_timeline(history, start)
            for moment in _find_moments_far_from_changes(history):
                _check_moment(history, start, moment, with_created_at)
        transaction.set_rollback(True)


def _check_timeline(history: list[PlannedVersion], start: datetime) -> None:
    removed = {change.number for change in history if change.arrives and change.dated < start}
    for version in timeline.fetch_page(HOST, TimelineQuery(entity=ROOT, id="A1")).versions:
        if version.missing_reason is Absence.NEVER_ARRIVED:
            assert not removed & set(version.missing)
        below = removed & set(range(version.version))
        if version.nothing_older_reason is Absence.NEVER_ARRIVED:
            # Versions from before the last creation may be removed, but none since then.
            born = max(m.number for m in history[: version.version] if m.type is ChangeType.CREATE)
            assert not {number for number in below if number >= born}
        if version.nothing_older_reason is Absence.REMOVED:
            assert any(change.dated < start for change in history[: version.version])
        if version.previous_version is None and version.nothing_older_reason is None:
            assert version.version <= 1


def _find_moments_far_from_changes(history: list[PlannedVersion]) -> Iterator[datetime]:
    """Yield moments so far from all versions that a wrong clock cannot alter the correct answer."""
    far = 2 * CLOCK_TOLERANCE
    yield history[0].moment - far
    for change, later in zip(history, [*history[1:], None], strict=True):
        if later is None or later.moment > change.moment + 2 * far:
            yield change.moment + far


def _check_moment(
    history: list[PlannedVersion], start: datetime, moment: datetime, with_created_at: bool
) -> None:
    """Assert that fetch_version_at() finds a version or raises an error, as `history` demands.

    Args:
        start: The start of retention.
        moment: A moment so far from all versions that a wrong clock cannot alter the right answer.
        with_created_at: Whether the snapshots have createdAt.
    """
    before = [change for change in history if change.moment < moment]
    not_found: NotFoundError | None = None
    try:
        timeline.fetch_version_at(HOST, ROOT, "A1", moment)
    except NotFoundError as error:
        not_found = error
    if not before:
        lives = sum(change.type is ChangeType.CREATE for change in history)
        # Without createdAt, or if the document was created twice, the store cannot know when it was
        # first created.
        assert isinstance(not_found, NoVersionError) or (
            not_found and (not with_created_at or lives > 1)
        )
    elif all(change.arrives and change.dated < start for change in before):
        lives = sum(change.type is ChangeType.CREATE for change in history)
        assert isinstance(not_found, OlderThanRetentionError) or lives > 1
    elif any(select_kept(change, start) for change in before):
        assert not_found is None
