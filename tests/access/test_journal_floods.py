"""Requests that nobody in particular makes cannot fill the journal, and none of them vanishes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test import Client

from annals.access.journal import floods
from annals.access.journal.days import create
from annals.access.models import JournalEntry
from tests.access.test_journal import API
from tests.consuming import until
from tests.db.partitioned import transactional_db
from tests.db.store import Store

__all__ = ["transactional_db"]

FIRST = floods.OF_ONE


@pytest.fixture
def minute(store: Store, monkeypatch: pytest.MonkeyPatch) -> floods.Minute:
    """A minute that begins with the test and ends when the test says so."""
    began = floods.Minute(time.time(), ends=True)
    monkeypatch.setattr(floods.FLOOD, "minute", began)
    store.add("A1", 0, {}, 0)
    return began


def ask(number: int, where: str = "203.0.113.7") -> None:
    for _ in range(number):
        assert Client(REMOTE_ADDR=where).get(API).status_code == 401


def ended(minute: floods.Minute, monkeypatch: pytest.MonkeyPatch) -> list[JournalEntry]:
    """The rows that the end of the minute adds, in the transaction of the test."""
    before = set(JournalEntry.objects.values_list("id", flat=True))
    monkeypatch.setattr(connection, "close", lambda: None)
    floods.FLOOD.end(minute)
    return [row for row in JournalEntry.objects.order_by("-address") if row.id not in before]


def test_the_first_ones_are_rows_and_the_others_one_row(
    minute: floods.Minute, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(FIRST + 30)
    written = list(JournalEntry.objects.order_by("at"))
    assert [row.entity_id for row in written] == ["A1"] * FIRST
    assert [row.reason for row in written] == [""] * (FIRST - 1) + [floods.LAST_OF_ONE]
    (row,) = ended(minute, monkeypatch)
    assert (row.actor, row.outcome, row.address) == ("nobody", "refused", "203.0.113.7")
    assert row.query.startswith("30 more requests of this client in the minute from ")
    ask(1)
    assert JournalEntry.objects.count() == FIRST + 2


def test_an_ipv6_client_is_its_whole_network(
    minute: floods.Minute, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(FIRST + 5):
        ask(1, f"2001:db8::{number + 1:x}")
    assert JournalEntry.objects.count() == FIRST
    (row,) = ended(minute, monkeypatch)
    assert (row.address, row.query[:6]) == ("2001:db8::/64", "5 more")


def test_many_clients_at_once(minute: floods.Minute, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floods, "OF_ALL", 6)
    for number in range(10):
        ask(1, f"203.0.113.{number}")
    ask(2, "203.0.113.0")
    assert JournalEntry.objects.count() == 6
    assert JournalEntry.objects.filter(reason=floods.LAST_OF_ALL).count() == 1
    mine, others = ended(minute, monkeypatch)
    assert (mine.address, mine.query[:6]) == ("203.0.113.0", "2 more")
    assert (others.address, others.query[:31]) == ("", "4 more requests of clients with")


def test_who_is_logged_in_is_always_a_row(minute: floods.Minute) -> None:
    client = Client()
    client.force_login(User.objects.get(username="ops"))  # may not read the history
    for _ in range(FIRST + 5):
        assert client.get(API).status_code == 403
    assert JournalEntry.objects.filter(login="ops").count() == FIRST + 5


@pytest.fixture
def real(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Rows are committed. No minute has begun; one request of a client is a row in it."""
    create()
    monkeypatch.setattr(floods.FLOOD, "minute", None)
    monkeypatch.setattr(floods, "OF_ONE", 1)  # so that all requests come in time
    JournalEntry.objects.all().delete()
    yield
    JournalEntry.objects.all().delete()


@pytest.mark.usefixtures("real")
def test_the_row_comes_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floods, "MINUTE", 2.0)
    ask(1 + 3)
    found = JournalEntry.objects.filter(query__startswith="3 more requests")
    until(found.exists, "no row about the minute")


@pytest.mark.usefixtures("real")
def test_the_row_is_written_once_when_the_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floods, "FLUSH_S", 30.0)
    ask(1 + 3)
    minute = floods.FLOOD.minute
    assert minute is not None
    floods.FLOOD.flush()
    floods.FLOOD.end(minute)  # its timer
    floods.FLOOD.flush()
    assert JournalEntry.objects.filter(query__startswith="3 more requests").count() == 1


@pytest.mark.usefixtures("real")
def test_the_end_of_the_process_does_not_wait_for_the_database(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(floods, "FLUSH_S", 0.1)
    ask(1 + 3)
    found = JournalEntry.objects.filter(query__startswith="3 more requests")
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("LOCK TABLE access_journal IN ACCESS EXCLUSIVE MODE")
        floods.FLOOD.flush()
        assert "the access journal lacks 3 refused requests" in caplog.text
    until(found.exists, "the row is not written later")
