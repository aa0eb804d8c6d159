"""Who is refused costs little: each check comes before the ones that cost more."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from history.api.access import ALLOWANCES
from tests.access.issuer import Issuer
from tests.access.test_hostile import ADDRESS
from tests.db.store import Store

SEARCH = "/api/v1/search?q=A1"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Nobody has asked."""
    ALLOWANCES.clear()
    yield
    ALLOWANCES.clear()


@pytest.fixture
def issuer(issuer: Issuer, store: Store) -> Issuer:
    store.add("A1", 0, {"rate": "1"}, 0)
    return issuer


def queries(client: Client, address: str, **headers: str) -> list[str]:
    """What the database was asked, but for the row of the journal."""
    with CaptureQueriesContext(connection) as seen:
        client.get(address, headers=headers)
    asked = [each["sql"] for each in seen.captured_queries]
    return [each for each in asked if "access_journal" not in each and "SAVEPOINT" not in each]


def test_nothing_is_read_for_who_is_not_known(client: Client, issuer: Issuer) -> None:
    client.get(ADDRESS)  # the first request of a process looks at the migrations
    assert queries(client, ADDRESS) == []
    assert queries(client, ADDRESS, Authorization=f"Bearer {issuer.token(exp=1)}") == []
    assert queries(client, ADDRESS, Authorization=f"Bearer {issuer.token(scope='openid')}") == []


def test_the_allowance_comes_before_the_permission(client: Client, issuer: Issuer) -> None:
    """A login without the permission uses its allowance too, and then is asked for no more."""
    ops = User.objects.get(username="ops")
    client.force_login(ops)
    refused = client.get(ADDRESS)
    assert refused.status_code == 403
    assert int(refused.headers["RateLimit-Remaining"]) < int(refused.headers["RateLimit-Limit"])


def test_the_headers_say_what_is_left(client: Client, issuer: Issuer, settings: Any) -> None:
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, api_rate=3)
    client.force_login(User.objects.get(username="support"))
    found = []
    for address in (ADDRESS, f"{ADDRESS}?tz=x", "/api/v1/history/product-instance/none", ADDRESS):
        answer = client.get(address)
        names = ("RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset", "Retry-After")
        found.append([answer.status_code, *(answer.headers.get(name) for name in names)])
    assert found[:3] == [
        [200, "3", "2", "20", None],
        [400, "3", "1", "40", None],
        [404, "3", "0", "60", None],
    ]
    assert found[3] in ([429, "3", "0", "60", "20"], [429, "3", "0", "59", "19"])
    other = Client()
    other.force_login(User.objects.get(username="auditor"))
    assert other.get(ADDRESS).headers["RateLimit-Remaining"] == "2"
    assert other.head(ADDRESS).headers["RateLimit-Remaining"] == "1"
    assert other.options(ADDRESS).headers["RateLimit-Remaining"] == "0"


def test_an_answer_that_the_client_has_says_it_too(
    client: Client, store: Store, settings: Any
) -> None:
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, api_rate=3)
    store.add("A1", 0, {"rate": "1"}, 0)
    client.force_login(User.objects.get(username="support"))
    address = "/api/v1/history/product-instance/A1/versions/0"
    tag = client.get(address).headers["ETag"]
    known = client.get(address, headers={"If-None-Match": tag})
    assert (known.status_code, known.headers["RateLimit-Remaining"]) == (304, "1")


def test_without_a_limit_nothing_is_said(client: Client, issuer: Issuer, settings: Any) -> None:
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, api_rate=0)
    client.force_login(User.objects.get(username="support"))
    assert "RateLimit-Limit" not in client.get(ADDRESS).headers
    assert "RateLimit-Limit" not in Client().get(ADDRESS).headers


@pytest.mark.parametrize("address", [ADDRESS, SEARCH, "/api/v1/completeness"])
def test_options_for_who_may(address: str, client: Client, issuer: Issuer) -> None:
    assert client.options(address).status_code == 401
    for login, status in (("auditor", 204), ("ops", 204 if "compl" in address else 403)):
        client.force_login(User.objects.get(username=login))
        answer = client.options(address)
        assert answer.status_code == status
        if status == 204:
            assert answer.headers["Allow"] == "GET, HEAD, OPTIONS"
            assert (answer.content, "Content-Type" in answer.headers) == (b"", False)
    assert Client().options("/api/schema/").status_code == 204
    assert Client().options("/api/docs/").headers["Allow"] == "GET, HEAD, OPTIONS"
    client.force_login(User.objects.get(username="auditor"))
    assert client.options("/api/v1/nothing").status_code == 404


def test_options_is_no_look(client: Client, issuer: Issuer) -> None:
    from annals.access.models import JournalEntry

    client.force_login(User.objects.get(username="auditor"))
    client.options(ADDRESS)
    Client().options(ADDRESS)
    assert not JournalEntry.objects.exists()
