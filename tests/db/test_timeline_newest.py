"""Newest means the highest version number, in every answer and on every screen."""

import pytest
from django.test import Client

from tests.db.screens import A1, WHOLE
from tests.db.store import Store


@pytest.fixture
def skewed(store: Store) -> Store:
    """Version 1 was written by a service whose clock was fast: later than version 2."""
    store.add("A1", 0, {"name": "Ипотека", "rate": "10"}, 0)
    store.add("A1", 2, {"name": "Автокредит", "rate": "12"}, 1)
    store.add("A1", 1, {"name": "Ипотека", "rate": "11"}, 5)
    return store


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
