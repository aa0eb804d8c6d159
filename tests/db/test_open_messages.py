"""Open messages in quarantine are shown wherever their document is shown.

This holds for messages with a number above, between or below the stored versions, and without a
number.
"""

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from history.common import clock
from history.kinds.entities import BY_NAME, PARTS, ROOT
from ingest.messages.message import KafkaMessage
from ingest.models import Quarantined
from ingest.store.session import open_connection
from tests.db.commands import read_output
from tests.db.ingest_rows import create_ledger_row
from tests.db.ingested import CHILD_SOURCE, Ingested
from tests.db.screens import read_text
from tests.db.store import record_queries
from tests.messages import CHILD_TOPIC, NOW, TOPIC, make_value

TASK = BY_NAME["product-task"]
API = "/api/v1"
OF_A1 = f"{API}/history/product-instance/A1"
PAGE = "/admin/history/product-instance/A1/"
SOON = quote((NOW + timedelta(hours=1)).isoformat())
# Every API call and page that shows the document.
CALLS = [
    OF_A1,
    f"{OF_A1}?author=nobody",
    f"{OF_A1}/versions",
    f"{OF_A1}/versions/1",
    f"{OF_A1}/compare?from=1&to=3",
    f"{OF_A1}/at?time={SOON}",
    f"{OF_A1}/fields?path=/rate",
    f"{OF_A1}/blame",
    f"{API}/applications/A1/history",
    f"{API}/applications/A1/at?time={SOON}",
]
PAGES = [
    PAGE,
    f"{PAGE}?author=nobody",
    f"{PAGE}versions/1/",
    f"{PAGE}versions/1/?as=json",
    f"{PAGE}compare/?from=1&to=3",
    f"{PAGE}state/",
    f"{PAGE}field/?path=/rate",
    "/admin/applications/A1/",
    "/admin/at/A1/",
    f"{PAGE}?as=csv",
    f"{PAGE}?as=json",
    f"{PAGE}?as=note",
    "/admin/applications/A1/?as=csv",
]


def make_version_message(number: int | None, **changes: Any) -> bytes:
    """Return the message of a version of A1; each version is a minute later than the one before."""
    moment = (NOW + timedelta(minutes=number or 0) - timedelta(hours=1)).isoformat()
    fields = {"id": "A1", "version": number, "updatedAt": moment, "data": {"rate": str(number)}}
    return make_value(**fields | changes)


def make_child_message(id: str, number: int, **changes: Any) -> bytes:
    return make_version_message(number, **{"id": id, "productInstanceId": "A1"} | changes)


@pytest.fixture
def english(client: Client) -> Client:
    client.force_login(User.objects.get(username="support"))
    client.cookies["django_language"] = "en"
    return client


@pytest.fixture
def stored(ingested: Ingested) -> Iterator[Ingested]:
    """Store the versions 1 and 3 of A1 and version 0 of its child T1, with nothing left unread."""
    ingested.write(make_version_message(1), make_version_message(3))
    ingested.write(make_child_message("T1", 0), source=CHILD_SOURCE)
    now = clock.now()
    for topic in (topic for entity in PARTS for topic in entity.topics):
        create_ledger_row(topic=topic, topic_id="other", partition=9, end_known_at=now)
    with open_connection("test") as plain:
        plain.execute("UPDATE ingest_ledger SET high_watermark = next_offset, end_known_at = now()")
    yield ingested
    if connection.connection is not None:
        connection.connection.rollback()  # frees locks of the days


def fetch_quarantined(client: Client, address: str) -> list[dict[str, Any]]:
    """Return the quarantined messages that an answer of the API lists."""
    answer = client.get(address, headers={"Accept-Language": "en"})
    assert answer.status_code == 200, answer.content
    data = json.loads(answer.content)["data"]
    assert data["quarantinedCount"] == len(data["quarantined"])
    if "completeness" in data:
        assert data["completeness"]["quarantined"] == data["quarantinedCount"]
    messages: list[dict[str, Any]] = data["quarantined"]
    return messages


BAD: dict[str, tuple[bytes, int | None]] = {
    "above": (make_version_message(4, type="no such"), 4),
    "between": (make_version_message(2, type="no such"), 2),
    "below": (make_version_message(0, type="no such"), 0),
    "the number of a stored version": (make_version_message(3, data={"rate": "other"}), 3),
    "a version that is not a number": (make_version_message(4, version="four"), None),
    "no version": (make_version_message(4, version=...), None),
    "no time": (make_version_message(4, updatedAt="never"), 4),
}


@pytest.mark.parametrize("case", BAD)
def test_quarantined_message_is_listed_in_every_api_answer_and_page_of_its_document(
    case: str, stored: Ingested, english: Client
) -> None:
    body, number = BAD[case]
    stored.write(body)
    [row] = Quarantined.objects.all()
    made_at = None if case == "no time" else row.made_at
    for address in CALLS:
        [message] = fetch_quarantined(english, address)
        assert (message["kind"], message["id"], message["version"]) == (ROOT.name, "A1", number), (
            address
        )
        assert message["reason"] == row.reason
        assert (message["updatedAt"] is None) == (made_at is None), address
        assert message["readAt"] == row.first_seen.isoformat(timespec="microseconds")
    for address in PAGES:
        page_text = read_text(english.get(address))
        assert "is in quarantine" in page_text, address
        assert "is here" not in page_text, address
        if number is not None:
            assert re.search(rf"[vV]ersion {number} came on", page_text), address
        else:
            assert "its place is not known" in page_text, address


def test_error_for_missing_version_says_whether_it_is_in_quarantine(
    stored: Ingested, english: Client
) -> None:
    stored.write(make_version_message(4, type="no such"))
    for number, has_come in ((4, True), (5, False)):
        for address in (f"{OF_A1}/versions/{number}", f"{OF_A1}/compare?from=1&to={number}"):
            answer = english.get(address, headers={"Accept-Language": "en"})
            error = json.loads(answer.content)["error"]
            assert (answer.status_code, error["code"]) == (404, "not_found")
            assert ("it came, and could not be stored" in error["message"]) == has_come, address


@pytest.mark.parametrize("body", [b"{not json", None, b'"text"', b"\xff\xfe"])
def test_quarantined_message_is_shown_when_only_its_kafka_key_names_the_document(
    body: bytes | None, stored: Ingested, english: Client
) -> None:
    stored.write(KafkaMessage(TOPIC, 0, 2, -1, b"A1", body))
    for address in CALLS:
        [message] = fetch_quarantined(english, address)
        assert (message["id"], message["version"], message["updatedAt"]) == ("A1", None, None)
    for address in PAGES:
        assert "its place is not known" in read_text(english.get(address)), address


def test_quarantined_message_that_names_no_document_is_counted_separately(
    stored: Ingested, english: Client
) -> None:
    stored.write(KafkaMessage(TOPIC, 0, 2, -1, None, b"{not json"))
    assert fetch_quarantined(english, OF_A1) == []
    state = json.loads(english.get(OF_A1).content)["data"]["completeness"]
    assert (state["quarantined"], state["quarantinedWithoutId"]) == (0, 1)
    page_text = read_text(english.get(PAGE))
    assert "1 message in quarantine does not say which document it is about" in page_text
    assert "is here" not in page_text


@pytest.mark.parametrize("settled", ["discarded", "retried"])
def test_settled_quarantined_message_is_not_shown(
    settled: str, stored: Ingested, english: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored.write(make_version_message(4, type="no such"))
    assert fetch_quarantined(english, OF_A1)
    if settled == "discarded":
        read_output("quarantine", "discard", "--reason", "bad_type", "--why", "test")
    else:
        with open_connection("test") as plain:
            plain.execute("UPDATE ingest_quarantine SET value = %s", [make_version_message(4)])
        read_output("quarantine", "retry", "--now")
    for address in CALLS:
        assert fetch_quarantined(english, address) == [], address
    for address in PAGES:
        assert "is in quarantine" not in read_text(english.get(address)), address


def list_bad_children() -> Iterator[tuple[bytes, str]]:
    yield make_child_message("T1", 1, type="no such"), "T1"  # the child is stored
    # Only the stored version names the application.
    yield (
        make_child_message("T1", 1, productInstanceId=""),
        "T1",
    )
    yield make_child_message("T1", 1, productInstanceId="B9", type="no such"), "T1"
    # Only the message names the application.
    yield (
        make_child_message("T2", 0, type="no such"),
        "T2",
    )


@pytest.mark.parametrize(
    "body, id",
    [*list_bad_children()],
    ids=["stored", "without application", "another application", "not stored"],
)
def test_application_page_lists_quarantined_messages_of_its_children(
    body: bytes, id: str, stored: Ingested, english: Client
) -> None:
    stored.write(body, source=CHILD_SOURCE)
    for address in CALLS[-2:]:
        [message] = fetch_quarantined(english, address)
        assert (message["kind"], message["id"]) == (TASK.name, id)
    for address in ("/admin/applications/A1/", "/admin/at/A1/", "/admin/applications/A1/?as=csv"):
        page_text = read_text(english.get(address))
        assert id in page_text, address
        assert "is in quarantine" in page_text, address
    for address in CALLS[:-2]:
        assert fetch_quarantined(english, address) == []
    assert "Everything up to" in read_text(english.get(PAGE))


def test_quarantined_child_of_another_application_is_not_shown(
    stored: Ingested, english: Client
) -> None:
    stored.write(
        make_child_message("T9", 1, type="no such", productInstanceId="B9"), source=CHILD_SOURCE
    )
    stored.write(make_child_message("T8", 1, productInstanceId=""), source=CHILD_SOURCE)
    for address in CALLS:
        assert fetch_quarantined(english, address) == []


def test_search_and_start_page_show_number_of_quarantined_messages_of_a_document(
    stored: Ingested, english: Client
) -> None:
    stored.write(make_version_message(4, type="no such"))
    stored.write(make_child_message("T2", 0, type="no such"), source=CHILD_SOURCE)
    results = json.loads(english.get(f"{API}/search?q=A1").content)["data"]["results"]
    assert [item["quarantinedCount"] for item in results] == [2]
    assert "2 changes in quarantine" in read_text(english.get("/admin/history/?q=A1,T1"))
    english.get("/admin/applications/A1/")
    assert "2 changes in quarantine" in read_text(english.get("/admin/"))


def test_state_at_moment_is_uncertain_when_quarantined_message_may_be_before_moment(
    stored: Ingested, english: Client
) -> None:
    stored.write(
        make_version_message(4, type="no such"),
        make_version_message(5, version="?"),
        make_version_message(6, updatedAt="never"),
    )
    [document] = json.loads(english.get(CALLS[5]).content)["data"]["uncertain"]
    assert [item["version"] for item in document["quarantined"]] == [6, None, 4]
    assert (document["missingVersions"], document["missingCount"], document["missingReason"]) == (
        [],
        0,
        None,
    )
    # A moment before versions 4 and 5: only the message without a time may be earlier.
    before = quote((NOW - timedelta(hours=1) + timedelta(minutes=3, seconds=5)).isoformat())
    [document] = json.loads(english.get(f"{OF_A1}/at?time={before}").content)["data"]["uncertain"]
    assert [item["version"] for item in document["quarantined"]] == [6]
    # A moment before version 3: all messages have higher numbers, so they are later.
    early = quote((NOW - timedelta(hours=1) + timedelta(minutes=1, seconds=5)).isoformat())
    [gap] = json.loads(english.get(f"{OF_A1}/at?time={early}").content)["data"]["uncertain"]
    assert (gap["missingVersions"], gap["quarantined"]) == ([2], [])
    whole = json.loads(english.get(CALLS[-1]).content)["data"]["uncertain"]
    assert [item["id"] for item in whole] == ["A1"]
    page_text = read_text(english.get("/admin/at/A1/"))
    assert "the state at this moment may have been different" in page_text


def test_list_of_many_quarantined_messages_is_cut_and_the_rest_is_counted(
    stored: Ingested, english: Client
) -> None:
    Quarantined.objects.bulk_create(
        Quarantined(
            topic=TOPIC,
            topic_id="t",
            partition=1,
            offset=number,
            reason="bad_type",
            detail="",
            entity=ROOT.name,
            entity_id="A1",
            version=number + 4,
            first_seen=clock.now(),
        )
        for number in range(1_200)
    )
    data = json.loads(english.get(OF_A1).content)["data"]
    assert (len(data["quarantined"]), data["quarantinedCount"]) == (100, 1_000)
    page_text = read_text(english.get(PAGE))
    assert "1 000+ changes came and are not shown here" in page_text
    assert "And 995+ more." in page_text


def test_export_counts_quarantined_messages_of_exported_days(
    stored: Ingested, tmp_path: Path
) -> None:
    stored.write(make_version_message(4, type="no such"))
    day = NOW.date()
    span = ("--from", str(day - timedelta(days=1)), "--to", str(day + timedelta(days=1)))
    output = read_output(
        "export", "--entity", ROOT.name, *span, "--output", str(tmp_path), "--json"
    )
    assert json.loads(output)["quarantined"] == 1


def test_quarantine_is_queried_only_once_for_one_answer_or_page(
    stored: Ingested, english: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored.write(make_version_message(4, type="no such"))
    for address in (OF_A1, CALLS[-2], PAGE, "/admin/applications/A1/"):
        with record_queries(monkeypatch) as statements:
            english.get(address)
        quarantine_statements = [
            statement for statement in statements if "WITH chosen" in statement
        ]
        assert len(quarantine_statements) == 1, address


def test_migration_adds_application_and_moment_to_messages_quarantined_earlier(
    stored: Ingested,
) -> None:
    stored.write(
        make_child_message("T2", 0, type="no such"),
        KafkaMessage(CHILD_TOPIC, 0, 2, -1, None, b"{"),
        source=CHILD_SOURCE,
    )
    with open_connection("test") as plain:
        plain.execute("UPDATE ingest_quarantine SET application = '', made_at = NULL")
    module = import_module("ingest.migrations.0011_open_messages_of_earlier_releases")
    with connection.schema_editor() as editor:
        module.fill(apps, editor)
    rows = Quarantined.objects.order_by("offset").values_list("application", "made_at")
    assert [(name, moment is not None) for name, moment in rows] == [("A1", True), ("", False)]
