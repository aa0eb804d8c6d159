"""How many versions came since a timeline was shown."""

import re
import time

import pytest
from django.test import Client

from annals.access import sessions
from annals.access.models import JournalEntry
from tests.db.screens import A1, WHOLE
from tests.db.store import Store

pytestmark = pytest.mark.django_db


def poll_of(page: str) -> str:
    found = re.search(r'data-newer="([^"]*)"', page)
    assert found
    return found[1].replace("&amp;", "&")


def test_newer_versions_are_counted_and_leave_no_row(documents: Store, support: Client) -> None:
    card = poll_of(support.get(A1).content.decode())
    whole = poll_of(support.get(WHOLE).content.decode())
    looks = JournalEntry.objects.count()
    assert support.get(card).json() == support.get(whole).json() == {"text": ""}
    documents.add("A1", 2, {"name": "Ипотека", "rate": "16.5"}, 9)
    documents.add(
        "R7", 0, {"fullName": "Рожкова Анна"}, 10, entity="participant-role", application="A1"
    )
    assert support.get(card).json() == {"text": "1 новая версия: показать"}
    assert support.get(whole).json() == {"text": "2 новые версии: показать"}
    assert JournalEntry.objects.count() == looks


def test_only_what_the_login_opened_is_counted(documents: Store, support: Client) -> None:
    asked = {"since": "2020-01-01T00:00:00Z"}
    assert support.get(f"{A1}newer/", asked).status_code == 404
    support.get(A1)
    assert support.get(f"{A1}newer/", asked).status_code == 200
    assert support.get(f"{A1}newer/", {"since": "x"}).status_code == 404


def test_a_page_that_counts_does_not_keep_an_idle_login(documents: Store, support: Client) -> None:
    poll = poll_of(support.get(A1).content.decode())
    session = support.session
    session[sessions.SEEN] = seen = time.time() - 1000
    session.save()
    assert support.get(poll, headers={sessions.POLL: "1"}).status_code == 200
    assert support.session[sessions.SEEN] == seen
    support.get(A1)
    assert support.session[sessions.SEEN] > seen


def test_a_filtered_page_does_not_count(documents: Store, support: Client) -> None:
    assert "data-newer" not in support.get(A1, {"author": "x.unknown"}).content.decode()
