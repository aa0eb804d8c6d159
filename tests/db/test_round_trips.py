"""The number of round trips to the database that a page takes.

A round trip costs more than most queries.
"""

import base64
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from history.store import distribution
from history.store.search_index import children
from tests.db.store import Store, minute
from tests.round_trips import (
    ONE_MORE_ON_CLUSTER,
    ROUND_TRIPS,
    TASK,
    RoundTripQuestion,
    count_round_trips,
)

SECRET = base64.b64encode(b"support:support").decode()


@pytest.fixture
def count_trips(store: Store, client: Client, tmp_path: Path) -> Callable[..., int]:
    """Return a function that counts the round trips of a page with three versions and warm
    caches."""
    for version in range(3):
        store.add("A1", version, {"rate": str(version)}, version)

    def ask(address: str, **headers: str) -> int:
        for _ in range(2):
            assert client.get(address, headers=headers).status_code == 200
        answers: list[int] = []

        def get() -> None:
            answers.append(client.get(address, headers=headers).status_code)

        count = count_round_trips(get, tmp_path)
        assert answers == [200]
        return count

    return ask


def test_api_page_takes_four_round_trips_when_request_has_a_password(
    count_trips: Callable[..., int],
) -> None:
    """The round trips read the login, the ledger, and the versions with the names of their authors,
    and write the access journal."""
    trips = count_trips("/api/v1/history/product-instance/A1", authorization=f"Basic {SECRET}")
    assert trips == 4


def test_api_page_takes_five_round_trips_when_request_has_a_session(
    count_trips: Callable[..., int], client: Client
) -> None:
    """A request with a session takes one round trip more than a request with a password: it reads
    the session."""
    client.force_login(User.objects.get(username="support"))
    assert count_trips("/api/v1/history/product-instance/A1") == 5


def test_timeline_screen_takes_seven_round_trips(
    count_trips: Callable[..., int], client: Client
) -> None:
    """The timeline and its heading read versions. The bar chart of days reads all version keys.
    Permissions are cached for 5 seconds."""
    client.force_login(User.objects.get(username="support"))
    assert count_trips("/admin/history/product-instance/A1/") == 7


def list_child(application: str, id: str) -> None:
    """Add a task to the rows by which a cluster finds the children of an application."""
    plain, day = connection.connection, minute(0).date().toordinal() - date(1970, 1, 1).toordinal()
    children.upsert_children(plain, [children.ChildRow(application, TASK.name, id, day, day)])
    children.mark_complete(plain)


@pytest.mark.parametrize("name", ROUND_TRIPS)
def test_timeline_function_takes_expected_number_of_round_trips(
    store: Store, tmp_path: Path, name: str
) -> None:
    for version in range(3):
        store.add("A1", version, {"rate": version}, version)
        store.add("T1", version, {"status": version}, version, entity=TASK)
    call, expected = ROUND_TRIPS[name]
    if distribution.is_distributed_table(connection.connection, TASK.table):
        list_child("A1", "T1")
        expected += name in ONE_MORE_ON_CLUSTER
    question = RoundTripQuestion("A1", "T1", minute(60))
    call(question)
    call(question)
    assert count_round_trips(lambda: call(question), tmp_path) == expected
