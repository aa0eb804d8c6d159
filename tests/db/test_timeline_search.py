"""Search: documents by id, applications by a business key, in pages, last changed first."""

import json
from datetime import datetime
from importlib import import_module
from random import Random
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from history import timeline
from history.kinds.entities import BY_NAME
from history.models import SearchKey
from tests.db.store import HOST, T0, Store, minute

# Not imported by name, because the package has a function of this name, too.
searching = import_module("history.timeline.search")

PERSON, REALTY, TASK = "participant-role", "realty-info", "product-task"


def index_key(name: str, value: str, entity: str, id: str) -> None:
    """Store a search key, as ingest does together with the row."""
    SearchKey.objects.create(value=value, name=name, entity=entity, id=id, day=T0.date())


@pytest.fixture
def client_with_four_applications(store: Store) -> Store:
    """Store a client with four applications.

    By last change, newest first, they are A3, A1 and A2. For A4, the store has only the participant
    role of the client, and not the application. A1 has two participant roles of the client.
    """
    for number, minutes in ((1, 20), (2, 10), (3, 30)):
        store.add(f"A{number}", 0, {"name": "Ипотека"}, 0)
        store.add(f"A{number}", 1, {"name": f"Ипотека {number}"}, minutes)
    for id, application in (("P1", "A1"), ("P2", "A2"), ("P3", "A3"), ("P4", "A4"), ("P5", "A1")):
        store.add(id, 0, {"clientId": "777"}, 5, entity=PERSON, application=application)
        index_key("clientId", "777", PERSON, id)
    return store


@pytest.mark.parametrize("typed", ["Юрий-7", "Юрии\N{COMBINING BREVE}-7"])
@pytest.mark.parametrize("stored", ["Юрий-7", "Юрии\N{COMBINING BREVE}-7"])
def test_business_key_is_found_in_any_unicode_form(
    stored: str, typed: str, store: Store, auditor: Client
) -> None:
    """An earlier release did not normalise keys. The application must be listed once."""
    store.add("A1", 0, {"name": "Ипотека"}, 0)
    store.add("P1", 0, {"clientId": stored}, 5, entity=PERSON, application="A1")
    index_key("clientId", stored, PERSON, "P1")
    index_key("clientId", "Юрий-7" if stored != "Юрий-7" else "other", PERSON, "P1")
    answer = auditor.get("/api/v1/search", {"q": typed}).json()["data"]
    assert [(hit["id"], hit["foundBy"]) for hit in answer["results"]] == [("A1", "clientId")]


def test_search_compares_ids_exactly(store: Store, auditor: Client) -> None:
    store.add("Заявка-й", 0, {"name": "Ипотека"}, 0)
    answers = [
        auditor.get("/api/v1/search", {"q": typed}).json()["data"]["results"]
        for typed in ("Заявка-й", "Заявка-и\N{COMBINING BREVE}")
    ]
    assert [len(item) for item in answers] == [1, 0]


@pytest.mark.parametrize("moment", [T0.replace(year=T0.year + 1), minute(40), minute(25)])
def test_application_that_changes_between_search_pages_is_listed_once(
    client_with_four_applications: Store, moment: datetime
) -> None:
    """The moment of the new versions is before or after the moment of the first page."""
    first = timeline.search(HOST, "777", 1)
    client_with_four_applications.add("A2", 2, {"name": "again"}, moment)
    client_with_four_applications.add("A3", 2, {"name": "again"}, moment)
    seen = [result.id for result in first.results]
    following = first.next_token
    while following is not None:
        page = timeline.search(HOST, "777", 1, following)
        seen += [result.id for result in page.results]
        following = page.next_token
    assert seen == ["A3", "A2", "A1", "A4"]


def test_search_pages_show_each_application_once_while_all_applications_change(
    store: Store, client: Client
) -> None:
    """The search has the maximum number of results and the longest text. The page token must still
    fit into an address."""
    client.force_login(User.objects.get(username="auditor"))
    count, text = searching.MAX_DOCUMENTS, "ы" * 100
    with connection.cursor() as cursor:
        store.make_day(BY_NAME[PERSON], minute(0))
        cursor.execute(
            "INSERT INTO participant_role_aud SELECT 'P' || n, 0, '{}', %s, 'crm', NULL, 0,"
            " 'A' || n FROM generate_series(1, %s) n",
            [minute(0), count],
        )
        cursor.execute(
            "INSERT INTO search_key SELECT %s, 'clientId', 'participant-role', 'P' || n, now()"
            " FROM generate_series(1, %s) n",
            [text, count],
        )
    seen: list[str] = []
    query, random = {"q": text, "pageSize": "90"}, Random(1)
    for minutes in range(1, count + 1):
        answer = client.get(f"/api/v1/search?{urlencode(query)}")
        assert answer.status_code == 200, answer.content
        page = json.loads(answer.content)["data"]
        seen += [result["id"] for result in page["results"]]
        if "nextPageToken" not in page:
            break
        query["pageToken"] = page["nextPageToken"]
        assert len(urlencode(query)) < 8_000
        for id in random.sample(range(1, count + 1), 20):
            moment = random.choice([minute(minutes), minute(-minutes)])
            store.add(f"P{id}", minutes, {}, moment, entity=PERSON, application=f"A{id}")
    assert len(seen) == count
    assert len(set(seen)) == count


def test_search_says_that_too_many_documents_have_the_value(
    client_with_four_applications: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not timeline.search(HOST, "777").limited
    monkeypatch.setattr(searching, "MAX_DOCUMENTS", 5)
    assert not timeline.search(HOST, "777").limited  # five documents have the value
    monkeypatch.setattr(searching, "MAX_DOCUMENTS", 2)
    results = timeline.search(HOST, "777")
    assert results.limited
    assert 0 < len(results.results) <= 3
