"""A login that did something is switched off, never deleted: its entries would lose their name."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db.models import ProtectedError

from annals.access.models import JournalEntry


def before_deletion(instance: User, **_: Any) -> None:
    """A receiver of pre_delete: refuses to delete a login with entries in the access journal or in
    the admin's log. The database refuses it to the web; this is for commands, which run as the
    owner. Raises ProtectedError."""
    name = instance.get_username()
    if (
        LogEntry.objects.filter(user=instance).exists()
        or JournalEntry.objects.filter(login=name).exists()
    ):
        raise ProtectedError(
            f"{name} has entries in the access journal or in the admin's log, which would lose"
            " their name: set is_active to False instead of deleting it.",
            {instance},
        )
