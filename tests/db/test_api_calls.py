"""Completeness, local times and names of services in answers of the API."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import User
from django.http import QueryDict
from django.test import Client

from history.api.parameters import QueryParameters
from history.models import Person
from ingest.models import RetiredTopic
from tests.db.calls import read_data
from tests.db.ingest_rows import create_ledger_row
from tests.db.store import Store

ROOT = "/api/v1/history/product-instance"
NOW = datetime.now(UTC).replace(microsecond=0)


@pytest.fixture
def loan_application(store: Store) -> Store:
    for version in range(3):
        store.add("A1", version, {"rate": str(version), "name": "x"}, version * 10)
    store.add("P1", 0, {"income": "1"}, 5, entity="participant-role")
    return store


TOPIC = "top-storage.export.product-instance"
TWIN = "top-storage.export.migration.product-instance"


def test_complete_to_is_moment_of_newest_read_message_when_consumer_is_behind(
    auditor: Client, loan_application: Store
) -> None:
    hour_ago = NOW - timedelta(hours=1)
    create_ledger_row(TOPIC, high_watermark=17, newest_timestamp=hour_ago, end_known_at=NOW)
    create_ledger_row(TWIN, halted_at=NOW, end_known_at=NOW)
    block = read_data(auditor.get(f"{ROOT}/A1"))["completeness"]
    # Nothing says up to which moment the halted partition was read.
    assert block["completeTo"] is None
    assert (block["lagMessages"], block["halted"]) == (7, True)
    RetiredTopic.objects.create(topic=TWIN, why="the migration ended", retired_at=NOW)
    block = read_data(auditor.get(f"{ROOT}/A1?tz=Europe/Moscow"))["completeness"]
    moment = datetime.fromisoformat(block["completeTo"])
    assert moment == hour_ago
    assert moment.utcoffset() == timedelta(hours=3)


def test_complete_to_is_unknown_when_no_message_was_ever_read(
    auditor: Client, loan_application: Store
) -> None:
    block = read_data(auditor.get(f"{ROOT}/A1"))["completeness"]
    assert (block["completeTo"], block["lagSeconds"]) == (None, None)
    loan_application.add("A1", 9, {}, 60)
    assert read_data(auditor.get(f"{ROOT}/A1"))["completeness"]["missingVersions"] == 6


def test_completeness_call_shows_ledger(auditor: Client, client: Client) -> None:
    create_ledger_row(TOPIC, high_watermark=17, newest_timestamp=NOW, end_known_at=NOW)
    answer_data = read_data(auditor.get("/api/v1/completeness"))
    (partition,) = answer_data["partitions"]
    assert (partition["topic"], partition["stored"], partition["lag"]) == (TOPIC, 10, 7)
    assert answer_data["totals"]["lag"] == 7
    document = client.get("/api/schema/").json()
    described = document["components"]["schemas"]["Store"]["properties"]
    assert answer_data.keys() == described.keys()
    assert partition.keys() == described["partitions"]["items"]["properties"].keys()
    assert answer_data["ok"] is True
    client.force_login(User.objects.create_user("nobody", password="long enough"))
    assert client.get("/api/v1/completeness").status_code == 403


def test_local_time_that_occurs_twice_means_its_first_occurrence() -> None:
    query = "time=2026-10-25T02:30"
    parameters = QueryParameters(QueryDict(query), {"time"}, query)
    moment = parameters.read_moment("time", ZoneInfo("Europe/Berlin"))
    assert moment == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)


CONTENT = {"entity", "value", "old", "new"}


def find_service_names(answer: Any) -> list[tuple[str, str]]:
    """Return each clientId in an answer with its clientName; snapshots are left out."""
    pairs = []
    if isinstance(answer, dict):
        if "clientId" in answer:
            pairs.append((answer["clientId"], answer["clientName"]))
        inner = [value for name, value in answer.items() if name not in CONTENT]
    else:
        inner = answer if isinstance(answer, list) else []
    return pairs + [pair for value in inner for pair in find_service_names(value)]


@pytest.mark.parametrize(
    "call, count",
    [
        ("history/product-instance/A1", 2),
        ("history/product-instance/A1/versions", 2),
        ("history/product-instance/A1/versions/1", 1),
        ("history/product-instance/A1/compare?from=0&to=1", 2),
        ("history/product-instance/A1/at?time=2100-01-01", 1),
        ("history/product-instance/A1/fields?path=/rate", 2),
        ("history/product-instance/A1/blame", 2),
        ("applications/A1/history", 2),
        ("applications/A1/at?time=2100-01-01", 1),
    ],
)
def test_answer_has_service_name_beside_each_client_id(
    auditor: Client, store: Store, call: str, count: int
) -> None:
    Person.objects.create(login="top-crm", full_name="Обмен с CRM", kind="service")
    store.add("A1", 0, {"rate": "1", "clientId": "77"}, 0, client="top-crm")
    store.add("A1", 1, {"rate": "2", "clientId": "78"}, 1, client="new-one", author=None)
    service_names = find_service_names(read_data(auditor.get(f"/api/v1/{call}")))
    names = {"top-crm": "Обмен с CRM", "new-one": "new-one"}
    assert len(service_names) >= count
    assert all(name == names[id] for id, name in service_names)
