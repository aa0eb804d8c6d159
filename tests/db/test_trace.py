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
from history.common import clock
from history.completeness import trace
from history.completeness.trace import (
    BrokerBounds,
    Fate,
    FateState,
    MessagePosition,
)
from history.documents.record import UNSTORED_SPAN
from history.kinds.entities import ROOT
from history.store import quarantine_queries
from history.store.days.window import Window
from history.store.quarantined_messages import VersionRange
from ingest.models import Ledger, Quarantined, Unstored
from ingest.quarantine import messages
from ingest.store import empty_offsets
from ingest.store.batch import OffsetGap
from ingest.store.session import open_connection
from tests.db.commands import read_output
from tests.db.ingested import SOURCES, Ingested
from tests.db.screens import A1, read_text
from tests.db.store import HOST
from tests.db.test_quarantine import quarantine_messages_from_the_future
from tests.messages import NOW, SOURCE, TOPIC, WINDOW, make_value

BAD = {"updatedAt": "never"}
OLD = (NOW - timedelta(days=300)).isoformat()


def trace_version(number: int, id: str = "A1") -> Fate:
    return trace.trace_version(HOST, ROOT, id, number)


def trace_offset(offset: int, topic: str = TOPIC, broker: BrokerBounds | None = None) -> Fate:
    return trace.trace_message(MessagePosition(topic, 0, offset), broker)


def list_states(count: int, topic: str = TOPIC) -> list[str]:
    return [trace_offset(offset, topic).state.value for offset in range(count)]


def describe_in_english(fate: Fate) -> Sequence[str]:
    with translation.override("en"):
        return trace.describe_fate(fate)


def make_version_message(number: int, **changes: Any) -> bytes:
    return make_value(id="A1", version=number, **changes)


def run_trace_command(*words: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(read_output("trace", *words, "--json"))
    return report


VERSION = ("--entity", ROOT.name, "--id", "A1", "--version")


@pytest.fixture(autouse=True)
def unlocked(request: pytest.FixtureRequest) -> Iterator[None]:
    """Roll back the transaction of the test, because the locks of the transaction would keep days
    from being dropped."""
    request.getfixturevalue("db")
    if "ingested" in request.fixturenames:
        request.getfixturevalue("ingested")
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


@pytest.fixture
def ingested_messages(ingested: Ingested) -> Ingested:
    """Write five messages: stored, quarantined, stored, repeated and expired."""
    ingested.write(
        make_version_message(0, type="CREATE"),
        make_version_message(1, **BAD),
        make_version_message(2),
    )
    ingested.write(make_version_message(2), make_version_message(3, updatedAt=OLD))
    return ingested


def test_trace_tells_fate_of_a_message(ingested_messages: Ingested) -> None:
    assert list_states(5) == ["stored", "quarantined", "stored", "repeated", "expired"]
    assert all(trace_offset(offset).certain for offset in range(5))
    fate = trace_offset(1)
    assert (fate.name, fate.reason) == (("product-instance", "A1", 1), "bad_updated_at")
    assert fate.at is not None


def test_trace_tells_fate_of_a_version(ingested_messages: Ingested) -> None:
    states = [trace_version(number).state for number in range(5)]
    assert states == [
        FateState.STORED,
        FateState.QUARANTINED,
        FateState.STORED,
        FateState.UNKNOWN,  # only the offset of an expired message is stored
        FateState.UNKNOWN,
    ]
    assert trace_version(1).position == (TOPIC, 0, 1)
    never = trace_version(3)
    assert never.may_be is not None
    assert never.may_be.expired == 1
    sentences = describe_in_english(trace_version(4))
    assert "history has no version" in sentences[0]
    assert any("1 message of its topics came after its retention" in text for text in sentences)
    now, old = clock.now(), clock.now() - timedelta(minutes=2)
    for checked_at, actor in ((old, "No consumer has read"), (now, "Kafka has not answered")):
        Ledger.objects.update(checked_at=checked_at, end_known_at=old)
        assert actor in describe_in_english(trace_version(9, "B1"))[1]


def test_trace_distinguishes_lost_message_from_offset_without_message(ingested: Ingested) -> None:
    ingested.write(make_version_message(0), gap=OffsetGap(0, 2, lost=False))
    ingested.write(make_version_message(1), gap=OffsetGap(3, 5, lost=True))
    assert list_states(6) == ["unknown", "unknown", "stored", "lost", "lost", "stored"]
    assert "No message has this offset" in describe_in_english(trace_offset(0))[0]


def test_fate_is_unread_when_brokers_have_message_and_consumer_has_not_read_it(
    ingested_messages: Ingested,
) -> None:
    assert trace_offset(5).state is FateState.UNKNOWN
    assert trace_offset(5, broker=BrokerBounds(0, 6)).state is FateState.UNREAD
    assert trace_offset(6, broker=BrokerBounds(0, 6)).state is FateState.UNKNOWN
    assert trace_offset(5, broker=BrokerBounds(7, 9)).state is FateState.LOST
    with open_connection("test") as plain:
        plain.execute("UPDATE ingest_ledger SET high_watermark = 7 WHERE topic = %s", [TOPIC])
    assert [trace_offset(offset).state for offset in (5, 6, 7)] == [
        FateState.UNREAD,
        FateState.UNREAD,
        FateState.UNKNOWN,
    ]
    lag = trace_version(9, "B1").may_be
    assert lag is not None
    assert lag.unread is None  # the end offset of the twin topic is unknown


def test_fate_in_partition_that_was_never_read_is_unknown_unless_brokers_give_offsets(
    ingested: Ingested,
) -> None:
    unread = MessagePosition("top-storage.export.product-car", 0, 3)
    assert trace.trace_message(unread).state is FateState.UNKNOWN
    assert trace.trace_message(unread, BrokerBounds(0, 9)).state is FateState.UNREAD


def test_trace_explains_discarded_message(ingested_messages: Ingested) -> None:
    options = ("--reason", "bad_updated_at", "--why", "wrong release")
    read_output("quarantine", "discard", *options)
    for fate in (trace_version(1), trace_offset(1)):
        assert (fate.state, fate.reason) == (FateState.QUARANTINED, "bad_updated_at")
        assert fate.settled_at is not None
        assert "discarded" in describe_in_english(fate)[0]


def test_trace_names_message_of_version_stored_by_retry(ingested: Ingested) -> None:
    """The message is in quarantine until its day is in the window. After the retry, trace names the
    offset of the message."""
    quarantine_messages_from_the_future(ingested, make_version_message(1))
    assert (trace_offset(0).state, trace_offset(0).reason) == (
        FateState.QUARANTINED,
        "in_the_future",
    )
    read_output("quarantine", "retry", "--now")
    for fate in (trace_version(1), trace_offset(0)):
        assert (fate.state, fate.position) == (FateState.STORED, (TOPIC, 0, 0))
        assert fate.at is not None


def test_fate_of_message_is_repeated_when_its_topic_was_read_again(
    ingested_messages: Ingested,
) -> None:
    """The second reading repeats what the first one stored."""
    with open_connection("test") as plain:
        plain.execute("DELETE FROM ingest_ledger")
    ingested_messages.claim()
    ingested_messages.next = dict.fromkeys(SOURCES, 0)
    ingested_messages.write(
        make_version_message(0, type="CREATE"),
        make_version_message(1, **BAD),
        make_version_message(2),
    )
    assert list_states(3) == ["repeated", "quarantined", "repeated"]


def test_consecutive_messages_that_were_not_stored_share_one_row(ingested: Ingested) -> None:
    many = [make_version_message(number) for number in range(300)]
    ingested.write(*many)
    ingested.write(*many)
    [unstored_range] = Unstored.objects.all()
    assert (unstored_range.start_offset, unstored_range.end_offset, unstored_range.repeated) == (
        300,
        600,
        [300, 600],
    )
    ingested.write(
        make_version_message(300), gap=OffsetGap(600, 600 + 3 * UNSTORED_SPAN, lost=False)
    )
    assert Unstored.objects.count() == 1 + 4  # ranges are cut at multiples of UNSTORED_SPAN
    assert trace_offset(600 + 2 * UNSTORED_SPAN + 5).state is FateState.UNKNOWN
    assert trace_offset(600 + 3 * UNSTORED_SPAN).state is FateState.STORED


def test_fate_is_uncertain_after_retention_removed_rows_about_messages_that_were_not_stored(
    ingested_messages: Ingested,
) -> None:
    with open_connection("test") as plain:
        assert empty_offsets.remove_old_ranges(plain, WINDOW) == 0
        later = Window.at(NOW + timedelta(days=400), 90, 14)
        assert empty_offsets.remove_old_ranges(plain, later) == 1
    assert [
        (trace_offset(offset).state.value, trace_offset(offset).certain) for offset in (2, 3, 4)
    ] == [("stored", False)] * 3
    ingested_messages.write(make_version_message(5), make_version_message(5))
    assert [
        (trace_offset(offset).state.value, trace_offset(offset).certain) for offset in (5, 6)
    ] == [
        ("stored", True),
        ("repeated", True),
    ]


def test_trace_of_message_removed_from_quarantine_is_uncertain(ingested: Ingested) -> None:
    ingested.write(make_version_message(0), make_version_message(1, **BAD), make_version_message(2))
    read_output("quarantine", "discard", "--reason", "bad_updated_at", "--why", "wrong release")
    assert [trace_offset(offset).certain for offset in range(3)] == [True] * 3
    later = NOW + timedelta(days=400)
    with open_connection("test") as plain:
        assert messages.remove_old_messages(plain, Window.at(later, 90, 14), 7, later) == 1
    assert [trace_offset(offset).certain for offset in range(3)] == [False, False, True]
    assert "in quarantine" in describe_in_english(trace_offset(1))[0]
    ingested.write(make_version_message(3))
    assert trace_offset(3).certain


def test_trace_of_recreated_topic_ignores_old_ledger_row(ingested_messages: Ingested) -> None:
    """The ledger row of the former topic with this name has read further."""
    before, now = (BrokerBounds(0, 2, topic_id) for topic_id in (SOURCE.topic_id, "another id"))
    assert trace_offset(0, broker=before).state is FateState.STORED
    assert [trace_offset(offset, broker=now).state for offset in (0, 1, 2)] == [
        FateState.UNREAD,
        FateState.UNREAD,
        FateState.UNKNOWN,
    ]
    with open_connection("test") as plain:  # its log was truncated once
        plain.execute("UPDATE ingest_ledger SET topic_id = topic_id || '#2'")
    assert trace_offset(0, broker=before).state is FateState.STORED


# Tests of the command.


def test_trace_command_prints_fate_and_journals_access(ingested_messages: Ingested) -> None:
    report = run_trace_command(*VERSION, "1")
    assert (report["state"], report["reason"], report["offset"]) == (
        "quarantined",
        "bad_updated_at",
        1,
    )
    assert report["detail"]
    position = ("--topic", TOPIC, "--partition", "0", "--offset", "3", "--offline")
    assert run_trace_command(*position)["state"] == "repeated"
    entry = JournalEntry.objects.get(entity_id="A1", action="version")
    assert (entry.entity, entry.actor) == (ROOT.name, "operator")
    assert entry.application == "A1"  # so that the journal page shows the access to A1
    assert read_output("trace", *VERSION, "0").startswith("stored: Version 0 is stored.")
    ingested_messages.write(make_version_message(-1))
    lines = read_output("trace", *VERSION[:-1]).splitlines()  # the first one has no version number
    words = [line.split()[1] for line in lines if line.startswith("quarantined: ")]
    assert words == ["The", "Version"]


# Tests of the API and the screens.


@pytest.fixture
def english_support(support: Client) -> Client:
    support.cookies[settings.LANGUAGE_COOKIE_NAME] = "en"
    return support


@pytest.fixture
def fetch_trace(client: Client) -> Callable[..., Any]:
    def ask(login: str, **parameters: Any) -> Any:
        client.force_login(User.objects.get(username=login))
        return client.get("/api/v1/trace", parameters, headers={"Accept-Language": "en"})

    return ask


def test_trace_answer_gives_reason_and_never_shows_contents(
    ingested_messages: Ingested, fetch_trace: Callable[..., Any]
) -> None:
    answer = fetch_trace("support", entity=ROOT.name, id="A1", version=1)
    answer_data = answer.json()["data"]
    assert (answer_data["state"], answer_data["reason"], answer_data["kind"]) == (
        "quarantined",
        "bad_updated_at",
        ROOT.name,
    )
    assert answer_data["why"].startswith("Version 1 came on ")
    assert answer_data["why"].endswith("and is in quarantine: updatedAt is wrong.")
    assert b"rate" not in answer.content
    entry = JournalEntry.objects.get(login="support", action="version")
    assert (entry.entity, entry.entity_id, entry.application) == (ROOT.name, "A1", "A1")
    assert entry.query.endswith("?entity=product-instance&version=1")


def test_operator_learns_fate_of_message_but_not_its_document(
    ingested_messages: Ingested, fetch_trace: Callable[..., Any]
) -> None:
    position = {"topic": TOPIC, "partition": 0}
    answer_data = fetch_trace("ops", **position, offset=1).json()["data"]
    assert (answer_data["state"], answer_data["id"], answer_data["version"]) == (
        "quarantined",
        None,
        None,
    )
    assert fetch_trace("ops", **position, offset=4).json()["data"]["state"] == "expired"
    assert fetch_trace("ops", entity=ROOT.name, id="A1", version=1).status_code == 403
    assert fetch_trace("ops", entity=ROOT.name, id="A1", version=1, **position).status_code == 403


def test_timeline_distinguishes_quarantined_version_from_versions_that_never_arrived(
    ingested_messages: Ingested, english_support: Client
) -> None:
    """Version 1 is in quarantine. Versions 3 and 4 never came."""
    ingested_messages.write(make_version_message(5))
    page = english_support.get(A1)
    page_text = read_text(page)
    assert "Version 1 came on " in page_text
    assert "is in quarantine: updatedAt is wrong." in page_text
    assert "Version 1 never arrived" not in page_text
    assert "Versions 3–4 never arrived" in page_text
    assert f'href="{A1}versions/1/"' in page.content.decode()
    [newest, middle, _] = english_support.get(f"/api/v1/history/{ROOT.name}/A1").json()["data"][
        "history"
    ]
    assert (newest["missingReason"], middle["missingReason"]) == ("neverArrived", "inQuarantine")


def test_timeline_says_that_missing_first_version_is_in_quarantine(
    ingested: Ingested, english_support: Client
) -> None:
    created = NOW.isoformat()
    ingested.write(
        make_version_message(0, type="CREATE", **BAD),
        make_version_message(1, data={"createdAt": created}),
    )
    page_text = read_text(english_support.get(A1))
    assert "Version 0 came on " in page_text
    assert "Older versions never arrived" not in page_text
    [only] = english_support.get(f"/api/v1/history/{ROOT.name}/A1").json()["data"]["history"]
    assert only["olderVersions"] == "inQuarantine"


def test_gap_before_first_version_links_to_trace_of_missing_version(
    ingested: Ingested, english_support: Client
) -> None:
    ingested.write(make_version_message(3, data={"createdAt": NOW.isoformat()}))
    page = english_support.get(A1)
    assert "Older versions never arrived. What became of version 2?" in read_text(page)
    assert f'href="{A1}versions/2/"' in page.content.decode()
    assert "Version 2 never arrived." in read_text(english_support.get(f"{A1}versions/2/"))


def test_timeline_page_without_missing_version_does_not_query_quarantine(
    ingested: Ingested, english_support: Client
) -> None:
    ingested.write(make_version_message(0, type="CREATE"), make_version_message(1))
    with CaptureQueriesContext(connection) as queries:
        english_support.get(A1)
    assert not [query for query in queries.captured_queries if "ingest_quarantine" in query["sql"]]


TIMES = 3_000

pytestmark = pytest.mark.django_db


@pytest.fixture
def resent_versions() -> None:
    """Quarantine many messages with version 1 of A1 (TIMES says how many), and one with version 3.

    The last five messages with version 1 and the message with version 3 are discarded.
    """
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


def list_offsets() -> dict[int, int]:
    """Return, for each version number, the offset of its quarantined message."""
    versions = quarantine_queries.find_by_versions(ROOT, [VersionRange("A1", 0, 9)])["A1"]
    return {number: item.position.offset for number, item in versions.items()}


def list_sorted_rows(plan: dict[str, Any]) -> Iterator[float]:
    """Yield how many rows each sort node of a plan gets."""
    below = plan.get("Plans", [])
    if plan["Node Type"] in ("Sort", "Incremental Sort"):
        yield from (node["Actual Rows"] for node in below)
    for node in below:
        yield from list_sorted_rows(node)


@pytest.mark.plain_only("it checks the plan of a single PostgreSQL server")
def test_newest_message_that_can_be_retried_is_found_without_sorting(resent_versions: None) -> None:
    statements: list[tuple[str, Any]] = []

    def note(execute: Callable[..., Any], text: str, values: Any, *more: Any) -> Any:
        statements.append((text, values))
        return execute(text, values, *more)

    with connection.execute_wrapper(note):
        assert list_offsets() == {1: TIMES - 6, 3: TIMES}
    [(text, values)] = statements
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE ingest_quarantine")
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", values)
        plan = cursor.fetchone()[0]
    [whole] = json.loads(plan) if isinstance(plan, str) else plan
    assert max(list_sorted_rows(whole["Plan"]), default=0) <= 2
