"""Rows of the journal for people: with names and titles, or as a table of texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from django.contrib.auth.models import User
from django.db.models import TextChoices

from annals.access.journal.words import Action, Actor, Outcome
from annals.access.models import USER, JournalEntry
from history.admin.parts import links
from history.admin.parts.cards import title
from history.entities import BY_NAME
from history.people import Author, authors

COLUMNS: Final = (
    *("at", "login", "actor", "address", "action", "entity", "entity_id", "application"),
    *("outcome", "status", "reason", "method", "query", "request_id", "identity", "path", "moment"),
)
# A spreadsheet takes a text that begins so for a formula. It may split a line at other characters
# than the comma, and a cell at its line breaks.
_FORMULA: Final = re.compile(r"(?:^|(?<=[;,|\t\r\n]))(?=\s*[=+\-@\t\r＝＋－＠])")


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


@dataclass(frozen=True, slots=True)
class _Name:
    """A login of today, and the full name of its person."""

    login: str
    full: str


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
            who=(user.full if user else "") or _name(people[row.login], row.actor),
            now=user.login if user and user.login != row.login else "",
            actor=_label(Actor, row.actor),
            action=_label(Action, row.action),
            outcome=_label(Outcome, row.outcome),
            subject=title(kind) if kind else "",
            url=url,
        )


def _users(rows: Sequence[JournalEntry]) -> Mapping[str, _Name]:
    """The logins of today behind the identities of these rows."""
    keys = {row.identity.removeprefix(USER) for row in rows if row.identity.startswith(USER)}
    known = User.objects.filter(pk__in=[int(key) for key in keys if key.isdecimal()])
    return {f"{USER}{user.pk}": _Name(user.username, user.get_full_name()) for user in known}


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
    return _FORMULA.sub("'", str(value))
