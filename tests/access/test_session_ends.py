"""A session that ends while its request is answered."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client

from history import looks
from tests.db.store import Store

API = "/api/v1/history/product-instance/A1"


@pytest.mark.parametrize("address", [API, "/admin/history/product-instance/A1/"])
def test_it_answers_once_more_and_is_gone(
    store: Store, client: Client, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a logout in another window, for example; the request changes the session itself."""
    store.add("A1", 0, {"n": 1}, 0)
    client.force_login(User.objects.get(username="support"))

    def end(*_: Any) -> None:
        Session.objects.all().delete()

    monkeypatch.setattr(looks, "read", end)
    assert client.get(address).status_code == 200
    assert not Session.objects.exists()
    assert client.get(API).status_code == 401
