"""Reads the journal, newest first, a month at a time: no statement locks a year of days."""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.contrib.auth.models import User
from django.db import DatabaseError, models, transaction
from django.db.models import QuerySet, TextChoices
from django.urls import reverse
from django.utils.translation import gettext as _

from annals.access.journal.words import Action, Actor, Outcome
from annals.access.models import USER, JournalEntry, identity_of
from history.admin.parts import links
from history.admin.parts.cards import title
from history.base import clock
from history.base.plain_text import no_formula, one_line
from history.entities import BY_NAME
from history.people import Author, authors

SPAN: Final = timedelta(days=31)
CHUNK: Final = 1000

OPENED_BEFORE: Final = timedelta(days=30)
MOST_LOOKS: Final = 200

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


def opened_before(user: User, **_: Any) -> Iterable[tuple[str, str]]:
    """Receives history.base.signals.looks_back: the timelines that a login was shown, also in
    earlier sessions. Nothing where the journal cannot be read: the first page needs none."""
    looked = JournalEntry.objects.filter(
        login=user.get_username(),
        identity=identity_of(user.pk),
        outcome=Outcome.SHOWN,
        action__in=(Action.TIMELINE, Action.APPLICATION),
        at__gte=clock.now() - OPENED_BEFORE,
    ).order_by("-at")
    try:
        with transaction.atomic():
            return dict.fromkeys(looked.values_list("entity", "entity_id")[:MOST_LOOKS])
    except DatabaseError:
        return ()


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
        after = found[-1].pk


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


def _spans(filters: Filters, after: Place | None) -> Iterator[QuerySet[JournalEntry]]:
    """The rows by months, newest first. The bounds of a month are constants in its statement."""
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


COLUMNS: Final = (
    *("at", "login", "actor", "address", "action", "entity", "entity_id", "application"),
    *("outcome", "status", "reason", "method", "query", "request_id", "identity", "path", "moment"),
)


@dataclass(frozen=True, slots=True)
class Line:
    """One row, for people. who: the full name of the login, where it is known. now: what the login
    is called today, where that is another name. subject: the kind of what was looked at. url: its
    page, empty where there is none."""

    row: JournalEntry
    who: str
    now: str
    actor: str
    action: str
    outcome: str
    subject: str
    url: str


def lines(found: Iterable[JournalEntry]) -> Iterator[Line]:
    """The rows with their names for people."""
    rows = list(found)
    users = _users(rows)
    # A login of a provider, LOGIN@PROVIDER, is in no table of people: its LOGIN may be of others.
    people = authors(row.login for row in rows)
    for row in rows:
        kind = BY_NAME.get(row.entity)
        url = links.landing(kind, row.entity_id) if kind and row.entity_id else ""
        user = users.get(row.identity)
        yield Line(
            row=row,
            who=(user.get_full_name() if user else "") or _name(people[row.login], row.actor),
            now=user.username if user and user.username != row.login else "",
            actor=_label(Actor, row.actor),
            action=_("first page") if _at_home(row) else _label(Action, row.action),
            outcome=_label(Outcome, row.outcome),
            subject=title(kind) if kind else "",
            url=url,
        )


def _at_home(row: JournalEntry) -> bool:
    """Whether it is the first page, whose list of what was opened last is a look."""
    return row.action == Action.SEARCH and row.query.partition("?")[0] == reverse("admin:index")


def _users(rows: Sequence[JournalEntry]) -> Mapping[str, User]:
    """The logins of today behind the identities of these rows."""
    keys = {row.identity.removeprefix(USER) for row in rows if row.identity.startswith(USER)}
    known = User.objects.filter(pk__in=[int(key) for key in keys if key.isdecimal()])
    return {identity_of(user.pk): user for user in known}


# Who is in the table of people, by the kind there; a break-glass login may have any name.
_KINDS: Final = {Actor.PERSON.value: "person", Actor.SERVICE.value: "service"}


def _name(who: Author, actor: str) -> str:
    return who.name if who.kind == _KINDS.get(actor) else ""


def _label(words: type[TextChoices], value: str) -> str:
    """The word of a closed set for people; one of a later Annals as it is."""
    return str(words(value).label) if value in words.values else value


def cell(row: JournalEntry, name: str) -> str:
    """A value as text: a moment in ISO 8601, a text that no spreadsheet takes for a formula."""
    value = getattr(row, name)
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return no_formula(str(value))
