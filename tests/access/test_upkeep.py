"""What is left of ended logins goes with the daily upkeep; what lives stays."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session

from annals.access import sessions
from annals.access.models import Identity, LogoutToken, ProviderSession

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
