"""Who is refused costs little: each check comes before the ones that cost more."""

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from annals.access.models import JournalEntry
from tests.access.issuer import Issuer
from tests.access.test_hostile import ADDRESS
from tests.db.store import Store

SEARCH = "/api/v1/search?q=A1"


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
    assert not JournalEntry.objects.filter(outcome="shown").exists()
