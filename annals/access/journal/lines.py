"""Rows of the journal for people: with names and titles, or as a table of texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from annals.access.journal.words import Action, Actor, Outcome
from annals.access.models import JournalEntry
from history.admin.parts import links
from history.admin.parts.cards import title
from history.entities import BY_NAME
from history.people import Author, authors

COLUMNS: Final = (
    *("at", "login", "actor", "address", "action", "entity", "entity_id", "application"),
    *("outcome", "status", "reason", "method", "query", "request_id"),
)
# A spreadsheet takes a text that begins so for a formula.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True)
class Line:
    """One row, for people. who: the full name of the login, where it is known. subject: the kind of
    what was looked at. url: its page, empty where there is none."""

    row: JournalEntry
    who: str
    actor: str
    action: str
    outcome: str
    subject: str
    url: str


def lines(found: Iterable[JournalEntry]) -> Iterator[Line]:
    """The rows with their names for people."""
    rows = list(found)
    # A login of a provider is LOGIN@PROVIDER; the people table has LOGIN.
    known = authors(row.login.partition("@")[0] for row in rows)
    for row in rows:
        kind = BY_NAME.get(row.entity)
        url = links.landing(kind, row.entity_id) if kind and row.entity_id else ""
        yield Line(
            row=row,
            who=_name(known[row.login.partition("@")[0]]),
            actor=str(Actor(row.actor).label),
            action=str(Action(row.action).label),
            outcome=str(Outcome(row.outcome).label),
            subject=title(kind) if kind else "",
            url=url,
        )


def _name(who: Author) -> str:
    return "" if who.kind == "unknown" else who.name


def cell(row: JournalEntry, name: str) -> str:
    """A value as text: a moment in ISO 8601, a text that no spreadsheet takes for a formula."""
    value = getattr(row, name)
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    text = str(value)
    return f"'{text}" if text.startswith(_FORMULA) else text
