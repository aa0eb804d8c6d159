"""Newest means the highest version number, in every answer and on every screen."""

from __future__ import annotations

import json

import pytest
from django.contrib.auth.models import User
from django.test import Client

from history import timeline
from history.base import clock
from history.entities import ROOT
from tests.db.screens import A1, WHOLE, support, text
from tests.db.store import Store

__all__ = ["support"]


@pytest.fixture
def skewed(store: Store) -> Store:
    """Version 1 was written by a service whose clock was fast: later than version 2."""
    store.add("A1", 0, {"name": "Ипотека", "rate": "10"}, 0)
    store.add("A1", 2, {"name": "Автокредит", "rate": "12"}, 1)
    store.add("A1", 1, {"name": "Ипотека", "rate": "11"}, 5)
    return store


def test_the_newest_version_is_the_one_with_the_highest_number(skewed: Store) -> None:
    assert timeline.newest(ROOT, "A1").version == 2
    assert timeline.blame(ROOT, "A1").newest.version == 2
    assert timeline.at(ROOT, "A1", clock.now()).version == 2
    application = timeline.application_at("A1", clock.now()).application
    assert application is not None
    assert application.version == 2
    (found,) = timeline.search("A1").found
    assert found.version == 2


def test_of_a_number_given_twice_the_later_one(store: Store) -> None:
    store.add("A1", 3, {"n": "late"}, 9)
    store.add("A1", 3, {"n": "early"}, 2)
    assert timeline.newest(ROOT, "A1").data == {"n": "late"}
    assert timeline.version(ROOT, "A1", 3).data == {"n": "late"}
    assert timeline.blame(ROOT, "A1").newest.data == {"n": "late"}


@pytest.mark.parametrize("address", [A1, f"{A1}?type=UPDATE", WHOLE, f"{A1}state/"])
def test_the_head_of_every_screen_shows_it(skewed: Store, support: Client, address: str) -> None:
    page = support.get(address).content.decode()
    assert "<h1>Автокредит</h1>" in page
    assert "версия 2 ·" in page


def test_versions_are_compared_with_it(skewed: Store, support: Client) -> None:
    page = support.get(A1).content.decode()
    assert f"{A1}compare/?from=1&amp;to=2" in page
    assert "to=1" not in page
    asked = support.get(f"{A1}compare/").content.decode()
    assert 'name="to" min="0" required value="2"' in asked


def test_search_shows_it(skewed: Store, client: Client) -> None:
    client.force_login(User.objects.get(username="support"))
    body = json.loads(client.get("/api/v1/search?q=A1").content)
    assert body["data"]["results"][0]["version"] == 2
    skewed.add("A1", 0, {"name": "Квартира"}, 0, entity="realty-info")
    assert "Автокредит" in text(client.get("/admin/history/?q=A1"))
