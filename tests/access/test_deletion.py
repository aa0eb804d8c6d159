"""What a login did keeps its name: a login with entries is switched off, not deleted."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import transaction
from django.db.models import ProtectedError
from django.test import Client

from annals.access.local_logins import BACKEND
from annals.access.models import JournalEntry
from annals.access.roles import disable_demo_logins
from tests.db.store import Store


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
