"""Django's system checks of the inbox."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core import checks
from django.db import connections, router

from outbox.errors import WrongSettings, counted
from outbox.inbox.conf import conf
from outbox.inbox.message import handlers

TAG = "inbox"
Found = list[checks.CheckMessage]


def register() -> None:
    """Have `manage.py check` run the checks; those that ask the database with `--database`."""
    checks.register(check_settings, TAG)
    checks.register(check_handlers, TAG)
    checks.register(check_database, TAG)
    checks.register(check_messages, TAG, checks.Tags.database)


def check_settings(**_: Any) -> Found:
    """inbox.E001: settings.INBOX."""
    try:
        conf()
    except WrongSettings as error:
        return [checks.Error(str(error), hint="See docs/inbox.md.", id="inbox.E001")]
    return []


def check_database(**_: Any) -> Found:
    """inbox.E002: the tables need PostgreSQL."""
    alias = _alias()
    vendor = connections[alias].vendor
    if vendor == "postgresql":
        return []
    return [
        checks.Error(
            f"The inbox needs PostgreSQL; the database {alias!r} is {vendor}.",
            hint="Only effects in the database of the inbox are in one transaction with it.",
            id="inbox.E002",
        )
    ]


def check_handlers(**_: Any) -> Found:
    """inbox.W001: nothing is processed."""
    if handlers():
        return []
    hint = "Handlers are functions with @inbox.handler('topic') in the module inbox of an app."
    return [checks.Warning("The inbox has no handler.", hint=hint, id="inbox.W001")]


def check_messages(databases: Sequence[str] | None = None, **_: Any) -> Found:
    """inbox.W002: messages wait for a handler that the service does not have any more; inbox.W003:
    dead letters."""
    alias = _alias()
    if alias not in (databases or ()) or connections[alias].vendor != "postgresql":
        return []
    if "inbox_message" not in connections[alias].introspection.table_names():
        return []
    return _about_messages(alias)


def _about_messages(alias: str) -> Found:
    with connections[alias].cursor() as cursor:
        cursor.execute(
            "SELECT handler, count(*), count(*) FILTER (WHERE state = 'dead') FROM inbox_message"
            " GROUP BY handler ORDER BY handler"
        )
        rows = cursor.fetchall()
    found: Found = []
    for name, count, dead in rows:
        if name not in handlers():
            waiting = counted(count, "message waits", "messages wait")
            text = f"{waiting} for the handler {name!r}, which does not exist."
            hint = "Give a handler this name (name=...), or delete its rows in inbox_message."
            found.append(checks.Warning(text, hint=hint, id="inbox.W002"))
        if dead:
            text = f"The handler {name!r} has {counted(dead, 'dead letter')}."
            hint = "Retry or discard them in the admin."
            found.append(checks.Warning(text, hint=hint, id="inbox.W003"))
    return found


def _alias() -> str:
    from outbox.inbox.models import Waiting

    return router.db_for_write(Waiting)
