"""The API call `changes`: parameters, pages, the feed, need-to-know and journal entries."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from django.contrib.auth.models import User
from django.test import Client

from annals.access.models import JournalEntry
from history.completeness import complete_to
from history.completeness.complete_to import StoreCompleteness
from history.kinds.entities import ENTITIES, EntityKind
from tests.db.calls import check_error, read_data
from tests.db.store import Store, add_application_of_two_people, minute

WINDOW = {"from": minute(-600).isoformat(), "to": minute(600).isoformat()}


@pytest.fixture
def application_of_two_people(store: Store) -> Store:
    """Store an application and a child, changed by two people."""
    add_application_of_two_people(store)
    return store


def fetch_changes(client: Client, **parameters: Any) -> Any:
    return client.get("/api/v1/changes", {**WINDOW, **parameters})


def test_entry_of_changes_answer_has_application_id_and_title(
    application_of_two_people: Store, auditor: Client
) -> None:
    answer = read_data(fetch_changes(auditor, author="m.prygunov"))
    assert [(entry["id"], entry["version"]) for entry in answer["history"]] == [
        ("T1", 2),
        ("T1", 1),
        ("T1", 0),
    ]
    entry = answer["history"][0]
    assert (entry["kind"], entry["applicationId"]) == ("product-task", "A1")
    assert entry["applicationTitle"] == "Loan"
    assert entry["previousVersion"] == 1
    assert entry["diff"] == [{"op": "replace", "path": "/stage", "value": 2}]
    assert answer["complete"] is True
    assert "completeTo" in answer["completeness"]
    assert "nextPageToken" not in answer


def test_each_version_is_on_exactly_one_page_of_the_changes(
    application_of_two_people: Store, auditor: Client
) -> None:
    first = read_data(fetch_changes(auditor, clientId="top-crm", pageSize=4))
    second = read_data(
        fetch_changes(auditor, clientId="top-crm", pageSize=4, pageToken=first["nextPageToken"])
    )
    seen = [(item["id"], item["version"]) for item in first["history"] + second["history"]]
    assert len(seen) == len(set(seen)) == 6
    assert "nextPageToken" not in second


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({}, "author"),
        ({"entity": "nothing", "author": "m.ivanov"}, "entity"),
        ({"type": "CHANGE", "author": "m.ivanov"}, "type"),
        ({"author": ""}, "author"),
        ({"author": "x" * 65}, "author"),
        ({"author": "  "}, "author"),
        ({"author": "m.ivanov", "clientId": " "}, "clientId"),
        ({"author": "m.ivanov", "pageSize": 0}, "pageSize"),
        ({"author": "m.ivanov", "pageToken": "v1:another"}, "pageToken"),
        ({"author": "m.ivanov", "path": "rate"}, "path"),
        (
            {"author": "m.ivanov", "from": minute(1).isoformat(), "to": minute(0).isoformat()},
            "from",
        ),
        ({"author": "m.ivanov", "sort": "version"}, "sort"),
        ({"author": "m.ivanov", "order": "up"}, "order"),
        ({"author": "m.ivanov", "from": "yesterday"}, "from"),
    ],
)
def test_error_names_wrong_parameter_of_changes_call(
    store: Store, auditor: Client, parameters: dict[str, Any], name: str
) -> None:
    assert (
        check_error(fetch_changes(auditor, **parameters), 400, "bad_parameter")["parameter"] == name
    )


def test_get_changes_refuses_page_token_of_a_different_query(
    application_of_two_people: Store, auditor: Client
) -> None:
    token = read_data(fetch_changes(auditor, author="m.ivanov", pageSize=1))["nextPageToken"]
    for other_query in ({"author": "m.prygunov"}, {"author": "m.ivanov", "type": "UPDATE"}):
        answer = fetch_changes(auditor, **other_query, pageToken=token)
        assert check_error(answer, 400, "bad_parameter")["parameter"] == "pageToken"


def test_get_changes_needs_no_author_for_time_span_of_at_most_one_hour(
    application_of_two_people: Store, auditor: Client
) -> None:
    window = {"from": minute(0).isoformat(), "to": minute(60).isoformat()}
    assert len(read_data(fetch_changes(auditor, **window))["history"]) == 6
    window = {"from": minute(0).isoformat(), "to": minute(60.1).isoformat()}
    assert (
        check_error(fetch_changes(auditor, **window), 400, "bad_parameter")["parameter"] == "author"
    )


def test_get_changes_gives_error_older_than_retention_when_time_span_is_before_retention(
    store: Store, auditor: Client
) -> None:
    old = {"from": minute(-1e6).isoformat(), "to": minute(-9e5).isoformat()}
    check_error(fetch_changes(auditor, author="m.ivanov", **old), 404, "older_than_retention")


def test_role_ops_may_not_read_changes(store: Store, client: Client) -> None:
    client.force_login(User.objects.get(username="ops"))
    check_error(fetch_changes(client, author="m.ivanov"), 403, "no_permission")


def test_get_changes_filtered_by_author_and_service_writes_one_journal_entry_with_the_filters(
    application_of_two_people: Store, auditor: Client
) -> None:
    read_data(fetch_changes(auditor, author="m.ivanov", clientId="top-crm"))
    [entry] = JournalEntry.objects.all()
    assert (entry.action, entry.application, entry.outcome) == ("search", "", "shown")
    assert "author=m.ivanov" in entry.query
    assert "clientId=top-crm" in entry.query


def test_journal_entry_of_changes_call_has_path_and_default_span(
    application_of_two_people: Store, auditor: Client
) -> None:
    answer = read_data(
        auditor.get("/api/v1/changes", {"author": "m.ivanov", "path": "/rate", "tz": "Asia/Tokyo"})
    )
    [entry] = JournalEntry.objects.all()
    window = [datetime.fromisoformat(answer[name]).astimezone(UTC) for name in ("from", "to")]
    since, until = (moment.isoformat() for moment in window)
    expected = {"author=m.ivanov", "path=/rate", f"from={since}", f"to={until}"}
    assert expected == set(entry.query.partition("?")[2].split("&"))


def test_changes_answer_counts_missing_versions_directly_before_each_version_on_the_page(
    store: Store, auditor: Client
) -> None:
    for number in (0, 3, 4):
        store.add("A1", number, {"rate": number}, number, author="m.ivanov")
    store.add("A2", 0, {}, 1, author="m.ivanov")
    store.add("A2", 2, {}, 2, author="m.ivanov")
    completeness = read_data(fetch_changes(auditor, author="m.ivanov"))["completeness"]
    assert completeness["missingVersions"] == 3
    assert "quarantined" not in completeness
    only_newest = read_data(fetch_changes(auditor, author="m.ivanov", pageSize=1))["completeness"]
    assert only_newest["missingVersions"] == 0


def open_only_b1(_user: object, application: Any) -> bool:
    return bool(application.id == "B1")


def test_changes_answer_omits_hidden_applications_and_journal_counts_them(
    application_of_two_people: Store, auditor: Client, settings: Any
) -> None:
    application_of_two_people.add("B1", 0, {"name": "Other"}, 1.5)
    rule = f"{__name__}.open_only_b1"
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, need_to_know=rule)
    answer = read_data(fetch_changes(auditor, clientId="top-crm", pageSize=1))
    assert [entry["id"] for entry in answer["history"]] == ["B1"]
    assert "A1" not in str(answer)
    [entry] = JournalEntry.objects.all()
    assert entry.reason == "need-to-know: 1 left out of the list"


def test_feed_stops_at_moment_of_completeness_and_page_token_continues_it_later(
    store: Store, auditor: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    completeness = complete_to.read_completeness(ENTITIES)

    def feed(complete: float | None, **parameters: str) -> Any:
        moment = None if complete is None else minute(complete)
        state = replace(completeness, complete_to=moment)
        monkeypatch.setattr(complete_to, "read_completeness", lambda _: state)
        begin = {"order": "asc", "from": minute(0).isoformat(), **parameters}
        return read_data(auditor.get("/api/v1/changes", begin))

    def list_numbers(answer: Any) -> list[int]:
        return [entry["version"] for entry in answer["history"]]

    for number in range(5):
        store.add("A1", number, {"rate": number}, number)
    first = feed(2)
    assert list_numbers(first) == [0, 1]
    assert list_numbers(feed(2, pageToken=first["nextPageToken"])) == []
    second = feed(3.5, pageToken=first["nextPageToken"])
    assert list_numbers(second) == [2, 3]
    assert list_numbers(feed(None, pageToken=second["nextPageToken"])) == []
    assert list_numbers(feed(9, pageToken=second["nextPageToken"], pageSize="1")) == [4]
    assert list_numbers(feed(None)) == []


def test_feed_of_one_kind_reads_completeness_of_that_kind_once(
    store: Store, auditor: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    completeness, asked_kinds = complete_to.read_completeness(ENTITIES), []

    def read_and_note(kinds: Sequence[EntityKind]) -> StoreCompleteness:
        asked_kinds.append([kind.name for kind in kinds])
        return completeness

    monkeypatch.setattr(complete_to, "read_completeness", read_and_note)
    read_data(fetch_changes(auditor, order="asc", author="m.ivanov", entity="product-task"))
    assert asked_kinds == [["product-task"]]
