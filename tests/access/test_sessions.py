"""Sessions that end, what is left of them, and logins that did something: these are switched off,
never deleted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.core.management import call_command
from django.db import transaction
from django.db.models import ProtectedError
from django.test import Client

from annals.access import sessions
from annals.access.local_logins import BACKEND
from annals.access.models import Identity, JournalEntry, LogoutToken, ProviderSession
from annals.access.roles import disable_demo_logins
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


NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


@pytest.fixture
def rows(db: None) -> None:
    identity = Identity.objects.create(
        issuer="i", subject="s", user=User.objects.get(username="support"), login="support"
    )
    for name, minutes in (("live", 5), ("ended", -5), ("ended-2", -5000)):
        Session.objects.create(
            session_key=name, session_data="", expire_date=NOW + timedelta(minutes=minutes)
        )
    for name, hours in (("live", 20), ("ended", 20), ("gone", 20), ("beginning", 0)):
        ProviderSession.objects.create(
            session_key=name, identity=identity, began=NOW - timedelta(hours=hours)
        )
    for name, minutes in (("counts", 59), ("forgotten", 121)):
        LogoutToken.objects.create(digest=name, until=NOW + timedelta(minutes=60 - minutes))


@pytest.mark.parametrize("at_once", [1, 10_000])
def test_ended_logins_are_removed(
    at_once: int, rows: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "ROWS_AT_ONCE", at_once)
    assert sessions.remove_ended(NOW) == 5
    assert set(Session.objects.values_list("session_key", flat=True)) == {"live"}
    assert set(ProviderSession.objects.values_list("session_key", flat=True)) == {
        "live",
        "beginning",
    }
    assert [each.digest for each in LogoutToken.objects.all()] == ["counts"]
    assert sessions.remove_ended(NOW) == 0


def test_a_login_with_entries_is_not_deleted(client: Client, store: Store) -> None:
    looked, changed, neither = (
        User.objects.create_user(name, is_staff=True, is_superuser=True)
        for name in ("looked", "changed", "neither")
    )
    client.force_login(looked)
    client.get("/api/v1/search?q=x")
    LogEntry.objects.create(user=changed, action_flag=2, object_repr="a label")
    for user in (looked, changed):
        words = f"{user.username} has entries"
        with pytest.raises(ProtectedError, match=words), transaction.atomic():
            user.delete()
        with pytest.raises(ProtectedError), transaction.atomic():
            User.objects.filter(pk=user.pk).delete()
    neither.delete()
    left = User.objects.filter(username__in=("looked", "changed", "neither"))
    assert {user.username for user in left} == {"looked", "changed"}
    assert LogEntry.objects.get().user == changed


def test_a_break_glass_login_that_was_used_is_switched_off(client: Client, store: Store) -> None:
    disable_demo_logins()
    call_command("breakglass", "glass")
    user = User.objects.get(username="glass")
    client.force_login(user, backend=BACKEND)
    assert client.get("/api/v1/search?q=x").status_code == 200
    LogEntry.objects.create(user=user, action_flag=2, object_repr="a label")
    call_command("breakglass", "glass", remove=True)
    assert client.get("/api/v1/search?q=x").status_code == 401
    user.refresh_from_db()
    assert (user.is_active, user.is_superuser, user.has_usable_password()) == (False, False, False)
    assert LogEntry.objects.get().user == user
    assert JournalEntry.objects.filter(login="glass").exists()
    call_command("breakglass", "glass")
    user.refresh_from_db()
    assert (user.is_active, user.is_superuser, user.has_usable_password()) == (True, True, False)
