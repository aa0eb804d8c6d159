"""Reads the journal, newest first, a month at a time: no statement locks a year of days."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Final

from django.conf import settings
from django.db import models
from django.db.models import QuerySet

from annals.access.models import JournalEntry
from history import clock
from history.plain_text import one_line

SPAN: Final = timedelta(days=31)
CHUNK: Final = 1000

# The place of a row: what comes after it is older.
Place = tuple[datetime, uuid.UUID]


@dataclass(frozen=True, slots=True)
class Filters:
    """Conditions that all hold; empty means any. since, until: half-open, with an offset."""

    login: str = ""
    entity: str = ""
    entity_id: str = ""
    application: str = ""
    action: str = ""
    outcome: str = ""
    since: datetime | None = None
    until: datetime | None = None


def page(filters: Filters, size: int, after: Place | None = None) -> list[JournalEntry]:
    """Up to `size` rows after a place (None: the newest ones)."""
    found: list[JournalEntry] = []
    for span in _spans(filters, after):
        found += map(_readable, span[: size - len(found)])
        if len(found) == size:
            break
    return found


def rows(filters: Filters) -> Iterator[JournalEntry]:
    """All rows, some in memory at a time."""
    after: Place | None = None
    while found := page(filters, CHUNK, after):
        yield from found
        after = place(found[-1])


def _readable(row: JournalEntry) -> JournalEntry:
    """The row with its texts on one line, also where something else than Annals has written it."""
    for name in _TEXTS:
        setattr(row, name, one_line(getattr(row, name)))
    return row


_TEXTS: Final = tuple(
    each.name
    for each in JournalEntry._meta.fields
    if isinstance(each, models.CharField | models.TextField)
)


def place(row: JournalEntry) -> Place:
    """Where a row is in the order of the journal."""
    return row.at, row.id


def _spans(filters: Filters, after: Place | None) -> Iterator[QuerySet[JournalEntry]]:
    """The rows by months, newest first. The bounds of a month are constants in its statement, so
    PostgreSQL opens only the days of that month."""
    now = clock.now()
    # The database's clock may be ahead of this one.
    until = min(filters.until or now + timedelta(days=1), now + timedelta(days=1))
    if after is not None and after[0] < until:
        until = after[0] + timedelta(microseconds=1)
    kept = now.astimezone(UTC) - timedelta(days=settings.ANNALS.journal_days + 1)
    oldest = max(filters.since or kept, kept)
    wanted = {
        field.name: one_line(getattr(filters, field.name))
        for field in fields(filters)
        if field.name not in ("since", "until") and getattr(filters, field.name)
    }
    while until > oldest:
        begin = max(until - SPAN, oldest)
        found = JournalEntry.objects.filter(at__gte=begin, at__lt=until, **wanted)
        if after is not None:
            found = found.filter(pk__lt=after)
        yield found.order_by("-at", "-id")
        until = begin
