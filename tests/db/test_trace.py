"""The fate of any version and any message."""

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import translation

from annals.access.models import JournalEntry
from history import quarantined, trace
from history.base import clock
from history.daily.window import Window
from history.entities import ROOT
from history.record import UNSTORED_SPAN
from history.trace import Bounds, Fate, MessagePlace, State
from ingest.models import Ledger, Quarantined, Unstored
from ingest.quarantine import messages
from ingest.store import empty_offsets
from ingest.store.batch import OffsetGap
from ingest.store.session import open_connection
from tests.db.commands import printed
from tests.db.ingested import SOURCES, Ingested
from tests.db.screens import A1, text
from tests.db.store import HOST
from tests.db.test_quarantine import store_too_early
from tests.messages import NOW, SOURCE, TOPIC, WINDOW, value

BAD = {"updatedAt": "never"}
OLD = (NOW - timedelta(days=300)).isoformat()


def version(number: int, id: str = "A1") -> Fate:
    return trace.of_version(HOST, ROOT, id, number)


def at(offset: int, topic: str = TOPIC, broker: Bounds | None = None) -> Fate:
    return trace.of_message(MessagePlace(topic, 0, offset), broker)


def states(count: int, topic: str = TOPIC) -> list[str]:
    return [at(offset, topic).state.value for offset in range(count)]


def in_english(fate: Fate) -> Sequence[str]:
    with translation.override("en"):
        return trace.said(fate)


def of(number: int, **changes: Any) -> bytes:
    return value(id="A1", version=number, **changes)


def command(*words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(printed("trace", *words, "--json"))
    return found


VERSION = ("--entity", ROOT.name, "--id", "A1", "--version")


@pytest.fixture(autouse=True)
def unlocked(request: pytest.FixtureRequest) -> Iterator[None]:
    """Release the locks of what a test has read, so that the days can be dropped after it."""
    request.getfixturevalue("db")
    if "ingested" in request.fixturenames:
        request.getfixturevalue("ingested")
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


@pytest.fixture
def seen(ingested: Ingested) -> Ingested:
    """Offsets 0 to 4: stored, in quarantine, stored, repeated, expired."""
    ingested.write(of(0, type="CREATE"), of(1, **BAD), of(2))
    ingested.write(of(2), of(3, updatedAt=OLD))
    return ingested


def test_each_message_has_its_fate(seen: Ingested) -> None:
    assert states(5) == ["stored", "quarantined", "stored", "repeated", "expired"]
    assert all(at(offset).certain for offset in range(5))
    held = at(1)
    assert (held.name, held.reason) == (("product-instance", "A1", 1), "bad_updated_at")
    assert held.at is not None


def test_each_version_has_its_fate(seen: Ingested) -> None:
    found = [version(number).state for number in range(5)]
    assert found == [
        State.STORED,
        State.QUARANTINED,
        State.STORED,
        State.UNKNOWN,  # of an expired message only the offset is noted
        State.UNKNOWN,
    ]
    assert version(1).place == (TOPIC, 0, 1)
    never = version(3)
    assert never.may_be is not None
    assert never.may_be.expired == 1
    said = in_english(version(4))
    assert "history has no version" in said[0]
    assert any("1 message of its topics came after its retention" in text for text in said)
    now, old = clock.now(), clock.now() - timedelta(minutes=2)
    for checked_at, who in ((old, "Nobody has read"), (now, "Kafka has not answered")):
        Ledger.objects.update(checked_at=checked_at, end_known_at=old)
        assert who in in_english(version(9, "B1"))[1]


def test_offsets_without_a_message_and_lost_ones(ingested: Ingested) -> None:
    ingested.write(of(0), gap=OffsetGap(0, 2, lost=False))
    ingested.write(of(1), gap=OffsetGap(3, 5, lost=True))
    assert states(6) == ["unknown", "unknown", "stored", "lost", "lost", "stored"]
    assert "No message has this offset" in in_english(at(0))[0]


def test_what_the_consumer_has_not_come_to(seen: Ingested) -> None:
    assert at(5).state is State.UNKNOWN
    assert at(5, broker=Bounds(0, 6)).state is State.UNREAD
    assert at(6, broker=Bounds(0, 6)).state is State.UNKNOWN
    assert at(5, broker=Bounds(7, 9)).state is State.LOST
    with open_connection("test") as plain:
        plain.execute("UPDATE ingest_ledger SET high_watermark = 7 WHERE topic = %s", [TOPIC])
    assert [at(offset).state for offset in (5, 6, 7)] == [
        State.UNREAD,
        State.UNREAD,
        State.UNKNOWN,
    ]
    lag = version(9, "B1").may_be
    assert lag is not None
    assert lag.unread is None  # of the twin topic no end is known


def test_a_partition_that_was_never_read(ingested: Ingested) -> None:
    unread = MessagePlace("top-storage.export.product-car", 0, 3)
    assert trace.of_message(unread).state is State.UNKNOWN
    assert trace.of_message(unread, Bounds(0, 9)).state is State.UNREAD


def test_a_discarded_message_stays_explained(seen: Ingested) -> None:
    which = ("--reason", "bad_updated_at", "--why", "wrong release")
    printed("quarantine", "discard", *which)
    for fate in (version(1), at(1)):
        assert (fate.state, fate.reason) == (State.QUARANTINED, "bad_updated_at")
        assert fate.settled_at is not None
        assert "discarded" in in_english(fate)[0]


def test_a_retried_message(ingested: Ingested) -> None:
    """In quarantine until its day was inside the window; then its place is known."""
    store_too_early(ingested, of(1))
    assert (at(0).state, at(0).reason) == (State.QUARANTINED, "in_the_future")
    printed("quarantine", "retry", "--now")
    for fate in (version(1), at(0)):
        assert (fate.state, fate.place) == (State.STORED, (TOPIC, 0, 0))
        assert fate.at is not None


def test_a_message_that_was_read_again(seen: Ingested) -> None:
    """A topic that is read from its start: what was stored then is repeated now."""
    with open_connection("test") as plain:
        plain.execute("DELETE FROM ingest_ledger")
    seen.claim()
    seen.next = dict.fromkeys(SOURCES, 0)
    seen.write(of(0, type="CREATE"), of(1, **BAD), of(2))
    assert states(3) == ["repeated", "quarantined", "repeated"]


def test_long_runs_take_one_row_and_one_of_them_is_found(ingested: Ingested) -> None:
    many = [of(number) for number in range(300)]
    ingested.write(*many)
    ingested.write(*many)
    [noted] = Unstored.objects.all()
    assert (noted.start_offset, noted.end_offset, noted.repeated) == (300, 600, [300, 600])
    ingested.write(of(300), gap=OffsetGap(600, 600 + 3 * UNSTORED_SPAN, lost=False))
    assert Unstored.objects.count() == 1 + 4  # cut at multiples of the span
    assert at(600 + 2 * UNSTORED_SPAN + 5).state is State.UNKNOWN
    assert at(600 + 3 * UNSTORED_SPAN).state is State.STORED


def test_what_retention_forgets_is_said_to_be_uncertain(seen: Ingested) -> None:
    with open_connection("test") as plain:
        assert empty_offsets.remove_old_ranges(plain, WINDOW) == 0
        later = Window.at(NOW + timedelta(days=400), 90, 14)
        assert empty_offsets.remove_old_ranges(plain, later) == 1
    assert [(at(offset).state.value, at(offset).certain) for offset in (2, 3, 4)] == [
        ("stored", False)
    ] * 3
    seen.write(of(5), of(5))
    assert [(at(offset).state.value, at(offset).certain) for offset in (5, 6)] == [
        ("stored", True),
        ("repeated", True),
    ]


def test_what_left_the_quarantine_is_not_said_to_be_stored(ingested: Ingested) -> None:
    ingested.write(of(0), of(1, **BAD), of(2))
    printed("quarantine", "discard", "--reason", "bad_updated_at", "--why", "wrong release")
    assert [at(offset).certain for offset in range(3)] == [True] * 3
    later = NOW + timedelta(days=400)
    with open_connection("test") as plain:
        assert messages.remove_old(plain, Window.at(later, 90, 14), 7, later) == 1
    assert [at(offset).certain for offset in range(3)] == [False, False, True]
    assert "in quarantine" in in_english(at(1))[0]
    ingested.write(of(3))
    assert at(3).certain


def test_a_topic_that_was_made_again_while_no_consumer_ran(seen: Ingested) -> None:
    """The ledger has read further in the topic that was there before."""
    before, now = (Bounds(0, 2, topic_id) for topic_id in (SOURCE.topic_id, "another id"))
    assert at(0, broker=before).state is State.STORED
    assert [at(offset, broker=now).state for offset in (0, 1, 2)] == [
        *(State.UNREAD, State.UNREAD),
        State.UNKNOWN,
    ]
    with open_connection("test") as plain:  # its log was cut once
        plain.execute("UPDATE ingest_ledger SET topic_id = topic_id || '#2'")
    assert at(0, broker=before).state is State.STORED


# The command.


def test_the_command_prints_it_and_the_journal_has_it(seen: Ingested) -> None:
    found = command(*VERSION, "1")
    assert (found["state"], found["reason"], found["offset"]) == (
        "quarantined",
        "bad_updated_at",
        1,
    )
    assert found["detail"]
    place = ("--topic", TOPIC, "--partition", "0", "--offset", "3", "--offline")
    assert command(*place)["state"] == "repeated"
    entry = JournalEntry.objects.get(entity_id="A1", action="version")
    assert (entry.entity, entry.actor) == (ROOT.name, "operator")
    assert entry.application == "A1"  # so that the screen shows it as a look at A1
    assert printed("trace", *VERSION, "0").startswith("stored: Version 0 is stored.")
    seen.write(of(-1))
    lines = printed("trace", *VERSION[:-1]).splitlines()  # the number of the first is none
    held = [line.split()[1] for line in lines if line.startswith("quarantined: ")]
    assert held == ["The", "Version"]


# The API and the screens.


@pytest.fixture
def english(support: Client) -> Client:
    support.cookies[settings.LANGUAGE_COOKIE_NAME] = "en"
    return support


@pytest.fixture
def ask(client: Client) -> Callable[..., Any]:
    def asked(who: str, **parameters: Any) -> Any:
        client.force_login(User.objects.get(username=who))
        return client.get("/api/v1/trace", parameters, headers={"Accept-Language": "en"})

    return asked


def test_the_api_says_why_and_never_the_contents(seen: Ingested, ask: Callable[..., Any]) -> None:
    answer = ask("support", entity=ROOT.name, id="A1", version=1)
    found = answer.json()["data"]
    assert (found["state"], found["reason"], found["kind"]) == (
        "quarantined",
        "bad_updated_at",
        ROOT.name,
    )
    assert found["why"].startswith("Version 1 came on ")
    assert found["why"].endswith("and is in quarantine: updatedAt is wrong.")
    assert b"rate" not in answer.content
    entry = JournalEntry.objects.get(login="support", action="version")
    assert (entry.entity, entry.entity_id, entry.application) == (ROOT.name, "A1", "A1")
    assert entry.query.endswith("?entity=product-instance&version=1")


def test_of_a_message_an_operator_learns_the_state_and_not_whose_it_is(
    seen: Ingested, ask: Callable[..., Any]
) -> None:
    place = {"topic": TOPIC, "partition": 0}
    found = ask("ops", **place, offset=1).json()["data"]
    assert (found["state"], found["id"], found["version"]) == ("quarantined", None, None)
    assert ask("ops", **place, offset=4).json()["data"]["state"] == "expired"
    assert ask("ops", entity=ROOT.name, id="A1", version=1).status_code == 403
    assert ask("ops", entity=ROOT.name, id="A1", version=1, **place).status_code == 403


def test_a_timeline_never_says_that_it_never_arrived(seen: Ingested, english: Client) -> None:
    """Version 1 is in quarantine, 3 and 4 never came."""
    seen.write(of(5))
    page = english.get(A1)
    said = text(page)
    assert "Version 1 came on " in said
    assert "is in quarantine: updatedAt is wrong." in said
    assert "Version 1 never arrived" not in said
    assert "Versions 3–4 never arrived" in said
    assert f'href="{A1}versions/1/"' in page.content.decode()
    [newest, middle, _] = english.get(f"/api/v1/history/{ROOT.name}/A1").json()["data"]["history"]
    assert (newest["missingReason"], middle["missingReason"]) == ("neverArrived", "inQuarantine")


def test_the_first_version_in_quarantine(ingested: Ingested, english: Client) -> None:
    created = NOW.isoformat()
    ingested.write(of(0, type="CREATE", **BAD), of(1, data={"createdAt": created}))
    said = text(english.get(A1))
    assert "Version 0 came on " in said
    assert "Older versions never arrived" not in said
    [only] = english.get(f"/api/v1/history/{ROOT.name}/A1").json()["data"]["history"]
    assert only["olderVersions"] == "inQuarantine"


def test_a_gap_at_the_beginning_leads_to_what_became_of_it(
    ingested: Ingested, english: Client
) -> None:
    ingested.write(of(3, data={"createdAt": NOW.isoformat()}))
    page = english.get(A1)
    assert "Older versions never arrived. What became of version 2?" in text(page)
    assert f'href="{A1}versions/2/"' in page.content.decode()
    assert "Version 2 never arrived." in text(english.get(f"{A1}versions/2/"))


def test_a_page_without_a_gap_asks_the_quarantine_nothing(
    ingested: Ingested, english: Client
) -> None:
    ingested.write(of(0, type="CREATE"), of(1))
    with CaptureQueriesContext(connection) as asked:
        english.get(A1)
    assert not [each for each in asked.captured_queries if "ingest_quarantine" in each["sql"]]


TIMES = 3_000

pytestmark = pytest.mark.django_db


@pytest.fixture
def sent_again() -> None:
    """Version 1 of A1 TIMES times, the last ones discarded; version 3 once, discarded."""
    moment = clock.now()
    Quarantined.objects.bulk_create(
        Quarantined(
            topic=ROOT.topics[0],
            topic_id="t",
            partition=0,
            offset=offset,
            reason="bad_updated_at",
            status="new" if offset < TIMES - 5 else "discarded",
            first_seen=moment,
            entity=ROOT.name,
            entity_id="A1",
            version=1 if offset < TIMES else 3,
        )
        for offset in range(TIMES + 1)
    )


def offsets() -> dict[int, int]:
    """The offset of the message of each version."""
    versions = quarantined.of_versions(ROOT, [("A1", 0, 9)])["A1"]
    return {number: each.place.offset for number, each in versions.items()}


def sorted_rows(plan: dict[str, Any]) -> Iterator[float]:
    """How many rows each sort of a plan gets."""
    below = plan.get("Plans", [])
    if plan["Node Type"] in ("Sort", "Incremental Sort"):
        yield from (each["Actual Rows"] for each in below)
    for each in below:
        yield from sorted_rows(each)


def test_the_latest_that_can_be_retried_is_found_without_sorting(sent_again: None) -> None:
    asked: list[tuple[str, Any]] = []

    def note(execute: Callable[..., Any], text: str, values: Any, *more: Any) -> Any:
        asked.append((text, values))
        return execute(text, values, *more)

    with connection.execute_wrapper(note):
        assert offsets() == {1: TIMES - 6, 3: TIMES}
    [(text, values)] = asked
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE ingest_quarantine")
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", values)
        plan = cursor.fetchone()[0]
    [whole] = json.loads(plan) if isinstance(plan, str) else plan
    assert max(sorted_rows(whole["Plan"]), default=0) <= 2
