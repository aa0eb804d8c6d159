"""Reads the journal, newest entry first.

Each statement reads one month, so that no statement locks the partitions of a whole year.
"""

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

from annals.access.journal.actions import AccessAction, AccessOutcome, ActorKind
from annals.access.models import USER_PREFIX, JournalEntry, format_user_identity
from history.admin.components import links
from history.admin.components.cards import get_kind_title
from history.common import clock
from history.common.plain_text import escape_formulas, to_one_line
from history.kinds.entities import BY_NAME
from history.store.catalogue.people import NamedLogin, fetch_named_logins

QUERY_SPAN: Final = timedelta(days=31)
CHUNK_ROWS: Final = 1000

OPENED_TIMELINES_AGE: Final = timedelta(days=30)
MAX_OPENED_TIMELINES: Final = 200

# The moment and id of an entry. A page after this position has older entries.
JournalPosition = tuple[datetime, uuid.UUID]


@dataclass(frozen=True, slots=True)
class JournalFilters:
    """The conditions that an entry must meet. An empty field allows every value.

    `since` is included and `until` is not. Both are timezone-aware.
    """

    login: str = ""
    entity: str = ""
    entity_id: str = ""
    application: str = ""
    action: str = ""
    outcome: str = ""
    since: datetime | None = None
    until: datetime | None = None


def list_opened_timelines(user: User, **_: Any) -> Iterable[tuple[str, str]]:
    """Return the kind and id of the timelines that a login opened, the newest first.

    A receiver of history.common.signals.opened_documents_requested. If the journal cannot be read,
    it returns an empty list, because the start page must not fail for that reason.
    """
    entries = JournalEntry.objects.filter(
        login=user.get_username(),
        identity=format_user_identity(user.pk),
        outcome=AccessOutcome.SHOWN,
        action__in=(AccessAction.TIMELINE, AccessAction.APPLICATION),
        at__gte=clock.now() - OPENED_TIMELINES_AGE,
    ).order_by("-at")
    try:
        with transaction.atomic():
            return dict.fromkeys(entries.values_list("entity", "entity_id")[:MAX_OPENED_TIMELINES])
    except DatabaseError:
        return ()


def fetch_page(
    filters: JournalFilters, size: int, after: JournalPosition | None = None
) -> list[JournalEntry]:
    """Return up to `size` entries, newest first.

    Args:
        after: The position of the last entry of the page before. None: return the first page.
    """
    entries: list[JournalEntry] = []
    for span in _generate_span_queries(filters, after):
        entries += map(_escape_texts, span[: size - len(entries)])
        if len(entries) == size:
            break
    return entries


def iterate_entries(filters: JournalFilters) -> Iterator[JournalEntry]:
    """Iterate over all entries, with one chunk in memory at a time."""
    after: JournalPosition | None = None
    while entries := fetch_page(filters, CHUNK_ROWS, after):
        yield from entries
        after = entries[-1].pk


def _escape_texts(row: JournalEntry) -> JournalEntry:
    """Escape line breaks in the texts of an entry.

    Annals writes no line breaks, but a different program can have written the entry.
    """
    for name in _TEXT_FIELDS:
        setattr(row, name, to_one_line(getattr(row, name)))
    return row


_TEXT_FIELDS: Final = tuple(
    field.name
    for field in JournalEntry._meta.fields
    if isinstance(field, models.CharField | models.TextField)
)


def _generate_span_queries(
    filters: JournalFilters, after: JournalPosition | None
) -> Iterator[QuerySet[JournalEntry]]:
    """Generate queries that read QUERY_SPAN of the journal each, the newest entries first.

    The bounds are constants in the statement, so that PostgreSQL opens only the days between them.
    """
    now = clock.now()
    # Entries have the time of the database's clock, which may be ahead of this machine's.
    until = min(filters.until or now + timedelta(days=1), now + timedelta(days=1))
    if after is not None and after[0] < until:
        until = after[0] + timedelta(microseconds=1)
    oldest_kept = now.astimezone(UTC) - timedelta(days=settings.ANNALS.journal_days + 1)
    oldest = max(filters.since or oldest_kept, oldest_kept)
    conditions = {
        field.name: to_one_line(getattr(filters, field.name))
        for field in fields(filters)
        if field.name not in ("since", "until") and getattr(filters, field.name)
    }
    while until > oldest:
        begin = max(until - QUERY_SPAN, oldest)
        entries = JournalEntry.objects.filter(at__gte=begin, at__lt=until, **conditions)
        if after is not None:
            entries = entries.filter(pk__lt=after)
        yield entries.order_by("-at", "-id")
        until = begin


COLUMNS: Final = (
    "at",
    "login",
    "actor",
    "address",
    "action",
    "entity",
    "entity_id",
    "application",
    "outcome",
    "status",
    "reason",
    "method",
    "query",
    "request_id",
    "identity",
    "path",
    "moment",
)


@dataclass(frozen=True, slots=True)
class JournalLine:
    """An entry as the screen shows it, with labels instead of codes.

    A text is empty if Annals does not know it, such as the full name of a login.
    """

    row: JournalEntry
    who: str  # the full name of the login
    now: str  # the present name of the login, if it was renamed since the entry
    actor: str
    action: str
    outcome: str
    subject: str  # the kind of document
    url: str  # the address of the document's page


def generate_lines(entries: Iterable[JournalEntry]) -> Iterator[JournalLine]:
    """Generate the lines of the screen for these entries."""
    rows = list(entries)
    users = _find_users(rows)
    # The table of people does not have logins of providers (LOGIN@PROVIDER): another person
    # may have the same LOGIN at another provider.
    people = fetch_named_logins(row.login for row in rows)
    for row in rows:
        kind = BY_NAME.get(row.entity)
        url = links.build_landing_url(kind, row.entity_id) if kind and row.entity_id else ""
        user = users.get(row.identity)
        yield JournalLine(
            row=row,
            who=(user.get_full_name() if user else "")
            or _get_full_name(people[row.login], row.actor),
            now=user.username if user and user.username != row.login else "",
            actor=_get_label(ActorKind, row.actor),
            action=_("start page") if _is_start_page(row) else _get_label(AccessAction, row.action),
            outcome=_get_label(AccessOutcome, row.outcome),
            subject=get_kind_title(kind) if kind else "",
            url=url,
        )


def _is_start_page(row: JournalEntry) -> bool:
    """Return whether an entry records a visit to the start page.

    The start page lists documents that were opened recently. So the journal records the visit with
    the action SEARCH and the address of the start page.
    """
    return row.action == AccessAction.SEARCH and row.query.partition("?")[0] == reverse(
        "admin:index"
    )


def _find_users(rows: Sequence[JournalEntry]) -> Mapping[str, User]:
    """Return the users behind these entries, by identity."""
    keys = {
        row.identity.removeprefix(USER_PREFIX)
        for row in rows
        if row.identity.startswith(USER_PREFIX)
    }
    users = User.objects.filter(pk__in=[int(key) for key in keys if key.isdecimal()])
    return {format_user_identity(user.pk): user for user in users}


# By kind of actor, the kind under which the table of people has the full name of the login. A
# break-glass login has none, because it may have the same name as the login of a person.
_PERSON_KINDS: Final = {ActorKind.PERSON.value: "person", ActorKind.SERVICE.value: "service"}


def _get_full_name(author: NamedLogin, actor: str) -> str:
    return author.name if author.kind == _PERSON_KINDS.get(actor) else ""


def _get_label(words: type[TextChoices], value: str) -> str:
    """Return the label of a value, or the value itself if only a later release knows it."""
    return str(words(value).label) if value in words.values else value


def format_cell(row: JournalEntry, name: str) -> str:
    """Return a column of an entry as text for CSV.

    A moment is in ISO 8601. A text is changed if a spreadsheet would take it for a formula.
    """
    value = getattr(row, name)
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return escape_formulas(str(value))
