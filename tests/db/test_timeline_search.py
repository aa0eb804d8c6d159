"""Search: entities by id, applications by a business key, in pages, newest change first."""

from __future__ import annotations

import json
from datetime import datetime
from importlib import import_module
from random import Random
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from history import timeline
from history.entities import BY_NAME
from history.models import SearchKey
from history.record import ChangeType
from history.timeline import BadParameterError, Carrier, Found, token
from tests.db.store import T0, Store, minute, queries

# The package has a function of this name.
searching = import_module("history.timeline.search")

PERSON, REALTY, TASK = "participant-role", "realty-info", "product-task"


def index(name: str, value: str, entity: str, id: str) -> None:
    """What ingest does for the search in addition to storing the row."""
    SearchKey.objects.create(value=value, name=name, entity=entity, id=id, day=T0.date())


def ids(found: tuple[Found, ...]) -> list[tuple[str, str]]:
    return [(each.entity.name, each.id) for each in found]


def walk(text: str, size: int) -> list[str]:
    """The ids on all pages; no page is longer than asked."""
    seen: list[str] = []
    following = None
    while True:
        page = timeline.search(text, size, following)
        assert len(page.found) <= size
        seen += [found.id for found in page.found]
        following = page.next_token
        if following is None:
            return seen


@pytest.fixture
def client_777(store: Store) -> Store:
    """A client with four applications: A3 changed last, then A1, A2, and A4 of which the store has
    only the client. In A1 the client is borrower and guarantor."""
    for number, at in ((1, 20), (2, 10), (3, 30)):
        store.add(f"A{number}", 0, {"name": "Ипотека"}, 0)
        store.add(f"A{number}", 1, {"name": f"Ипотека {number}"}, at)
    for id, application in (("P1", "A1"), ("P2", "A2"), ("P3", "A3"), ("P4", "A4"), ("P5", "A1")):
        store.add(id, 0, {"clientId": "777"}, 5, entity=PERSON, application=application)
        index("clientId", "777", PERSON, id)
    return store


def test_a_clients_number_gives_applications(client_777: Store) -> None:
    found = timeline.search("777").found
    assert ids(found) == [("product-instance", id) for id in ("A3", "A1", "A2", "A4")]
    assert [each.version for each in found] == [1, 1, 1, None]
    assert [each.key for each in found] == ["clientId"] * 4
    assert found[1].carriers == (
        Carrier(timeline.search("P1").found[0].entity, "P1"),
        Carrier(timeline.search("P5").found[0].entity, "P5"),
    )
    assert found[3].updated_at == minute(5)
    assert found[0].data == {"name": "Ипотека 3"}


@pytest.mark.parametrize("size", [1, 2, 3, 500])
def test_in_pages(client_777: Store, size: int) -> None:
    assert walk("777", size) == ["A3", "A1", "A2", "A4"]


@pytest.mark.parametrize("at", [T0.replace(year=T0.year + 1), minute(40), minute(25)])
def test_what_changes_between_two_pages_is_on_the_next(client_777: Store, at: datetime) -> None:
    """Of now, or a version that was on its way while the first page was read."""
    first = timeline.search("777", 1)
    client_777.add("A2", 2, {"name": "again"}, at)
    client_777.add("A3", 2, {"name": "again"}, at)
    seen = [found.id for found in first.found]
    following = first.next_token
    while following is not None:
        page = timeline.search("777", 1, following)
        seen += [found.id for found in page.found]
        following = page.next_token
    assert seen == ["A3", "A2", "A1", "A4"]


def test_no_application_is_lost_or_repeated_while_all_of_them_change(
    store: Store, client: Client
) -> None:
    """Also with the most hits, and the token always fits into an address with the longest text."""
    client.force_login(User.objects.get(username="auditor"))
    count, text = searching.MAX_DOCUMENTS, "ы" * 100
    with connection.cursor() as cursor:
        store.day(BY_NAME[PERSON], minute(0))
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
        cursor.execute(  # as ingest notes it where the tables are distributed
            "INSERT INTO child_home (entity, id, product_instance_id, newest_day)"
            " SELECT 'participant-role', 'P' || n, 'A' || n, now() FROM generate_series(1, %s) n",
            [count],
        )
    seen: list[str] = []
    asked, random = {"q": text, "pageSize": "90"}, Random(1)
    for turn in range(1, count + 1):
        answer = client.get(f"/api/v1/search?{urlencode(asked)}")
        assert answer.status_code == 200, answer.content
        page = json.loads(answer.content)["data"]
        seen += [found["id"] for found in page["results"]]
        if "nextPageToken" not in page:
            break
        asked["pageToken"] = page["nextPageToken"]
        assert len(urlencode(asked)) < 8_000
        for id in random.sample(range(1, count + 1), 20):
            at = random.choice([minute(turn), minute(-turn)])
            store.add(f"P{id}", turn, {}, at, entity=PERSON, application=f"A{id}")
    assert len(seen) == count
    assert len(set(seen)) == count


def test_a_token_of_an_earlier_release_is_refused(client_777: Store) -> None:
    old = token.issue(("search", "777"), (minute(40), 1, -5, "A3"))
    with pytest.raises(BadParameterError, match="pageToken"):
        timeline.search("777", 1, old)


def test_an_id_in_every_kind_comes_first_and_fills_the_page(client_777: Store) -> None:
    client_777.add("777", 0, {}, 0, entity=PERSON, application="A1")
    client_777.add("777", 0, {}, 0, entity=REALTY, application="A1")
    found = timeline.search("777", 3)
    assert ids(found.found) == [(PERSON, "777"), (REALTY, "777"), ("product-instance", "A3")]
    assert found.found[0].application == "A1"
    assert walk("777", 1) == ["777", "777", "A3", "A1", "A2", "A4"]
    assert walk("777", 2) == walk("777", 5) == walk("777", 1)


def test_an_application_with_this_id_and_this_key_is_there_once(client_777: Store) -> None:
    index("number", "A1", "product-instance", "A1")
    index("number", "A1", "product-instance", "A2")
    found = timeline.search("A1").found
    assert [(each.id, each.key) for each in found] == [("A1", "id"), ("A2", "number")]


def test_a_value_of_two_keys_gives_an_application_once(client_777: Store) -> None:
    index("number", "777", "product-instance", "A1")
    assert walk("777", 10) == ["A3", "A1", "A2", "A4"]


def test_letter_for_letter(client_777: Store) -> None:
    index("number", " 8", "product-instance", "A2")
    index("number", " ", "product-instance", "A3")
    assert walk(" 8", 10) == ["A2"]
    assert walk(" ", 10) == ["A3"]
    assert walk("8", 10) == walk(" 777", 10) == []
    for bad in ("", "x" * 101, "a\0"):
        with pytest.raises(BadParameterError, match="q"):
            timeline.search(bad)


def test_an_application_of_which_only_children_are_left_is_found_by_its_id(
    client_777: Store,
) -> None:
    client_777.add("R4", 0, {}, 7, entity=REALTY, application="A4")
    client_777.add("R4", 1, {}, 6, entity=REALTY, application="A1")
    (found,) = timeline.search("A4").found
    assert (found.entity.root, found.id, found.key) == (True, "A4", "id")
    assert (found.version, found.type, found.data) == (None, None, None)
    assert found.updated_at == minute(7)
    assert [each.id for each in timeline.search_all(["A4"])["A4"].found] == ["A4"]
    assert ids(timeline.search("A1").found) == [("product-instance", "A1")]


def test_what_retention_removed_is_not_found(store: Store) -> None:
    index("clientId", "777", PERSON, "P1")
    assert timeline.search("777").found == ()


def test_a_deleted_application_is_found(store: Store) -> None:
    store.add("A1", 1, "null", 0, type=ChangeType.DELETE)
    index("number", "N1", "product-instance", "A1")
    (found,) = timeline.search("N1").found
    assert (found.type, found.data) == (ChangeType.DELETE, None)


def test_a_value_of_too_many_documents_says_so(
    client_777: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not timeline.search("777").limited
    monkeypatch.setattr(searching, "MAX_DOCUMENTS", 5)
    assert not timeline.search("777").limited  # there are five
    monkeypatch.setattr(searching, "MAX_DOCUMENTS", 2)
    found = timeline.search("777")
    assert found.limited
    assert 0 < len(found.found) <= 3


def test_many_texts_take_as_many_queries_as_one(
    client_777: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = []
    for texts in (["777"], ["777", "A1", "P1", *(f"N{n}" for n in range(37)), "x" * 200, ""]):
        with queries(monkeypatch) as said:
            found = timeline.search_all(texts)
        counts.append(len(said))
        assert list(found) == texts
        assert ids(found["777"].found)[0] == ("product-instance", "A3")
    assert counts[0] <= counts[1] <= 16


# Over the API.


def test_the_api_names_the_documents_with_the_key(client_777: Store, client: Client) -> None:
    client.force_login(User.objects.get(username="auditor"))

    def ask(query: str) -> Any:
        answer = client.get(f"/api/v1/search?q={query}")
        assert answer.status_code == 200, answer.content
        return json.loads(answer.content)["data"]

    found = ask("777&pageSize=2")
    assert [each["id"] for each in found["results"]] == ["A3", "A1"]
    assert found["results"][1] == {
        "kind": "product-instance",
        "id": "A1",
        "productInstanceId": "A1",
        "foundBy": "clientId",
        "foundIn": [{"kind": PERSON, "id": "P1"}, {"kind": PERSON, "id": "P5"}],
        "version": 1,
        "type": "UPDATE",
        "updatedAt": minute(20).isoformat(timespec="microseconds"),
    }
    assert found["limited"] is False
    rest = ask(f"777&pageSize=2&pageToken={found['nextPageToken']}")
    assert [each["version"] for each in rest["results"]] == [1, None]
    assert ask("%20777")["results"] == []
    assert client.get("/api/v1/search?q=").status_code == 400
