"""Writes rows of the journal, in one statement, within a second or not at all."""

from __future__ import annotations

import logging
import os
import pwd
import sys
from collections.abc import Callable, Collection, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TextIO

import msgspec
import psycopg
from django.conf import settings
from django.contrib.auth.models import User
from django.db import Error, connection
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string

from annals import metrics
from annals.access.journal.entry import entries
from annals.access.journal.words import Action, Actor, Outcome, action_of
from annals.access.models import JournalEntry, identity_of
from history.api import errors
from history.base import clock
from history.base.error_text import describe
from history.base.plain_text import one_line
from history.base.signals import NotJournaledError
from history.entities import Entity
from history.requests.accesses import Look

if TYPE_CHECKING:
    from history.export.days import Day

log = logging.getLogger(__name__)
LOCK_TIMEOUT_MS: Final = 700
STATEMENT_TIMEOUT_MS: Final = 1000
LOCAL: Final = "local"
# One message, and one transaction. The schema is named: a temporary table would take the rows.
_TIMEOUTS: Final = (
    f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS};"
    f" SET LOCAL statement_timeout = {STATEMENT_TIMEOUT_MS};"
)
# For a transaction of the caller, which goes on.
_NO_TIMEOUTS: Final = "SET LOCAL lock_timeout TO DEFAULT; SET LOCAL statement_timeout TO DEFAULT"
_INSERT: Final = "INSERT INTO public.{table} ({names}) VALUES {rows}"


class JournalError(NotJournaledError):
    """It is not known that the journal has the rows: nothing may be shown."""


def write(entries: Collection[JournalEntry], output: TextIO) -> None:
    """Add rows; when this returns, they are committed, or they are part of the transaction that
    the caller has opened. output: where they go as lines of JSON, if ANNALS_JOURNAL_LOG is set.
    Raises JournalError."""
    row = f"({', '.join(['%s'] * len(_NAMES))})"
    insert = _INSERT.format(
        table=JournalEntry._meta.db_table,
        names=", ".join(_NAMES),
        rows=", ".join([row] * len(entries)),
    )
    values = [value for entry in entries for value in _values(entry)]
    try:
        if connection.errors_occurred and not connection.in_atomic_block:
            # An error of the database. A sound connection may have a lock, and stays.
            if connection.is_usable():
                connection.errors_occurred = False
            else:
                connection.close()
        connection.ensure_connection()
        with connection.wrap_database_errors, psycopg.ClientCursor(connection.connection) as cursor:
            after = _NO_TIMEOUTS if connection.in_atomic_block else ""
            cursor.execute(f"{_TIMEOUTS} {insert}; {after}", values)
    except (Error, psycopg.Error) as error:
        raise JournalError(f"the access journal cannot be written: {describe(error)}") from error
    if settings.ANNALS.journal_log:
        try:
            output.write("".join(map(_line, entries)))
            output.flush()
        except OSError as error:
            log.warning("rows of the access journal cannot be sent on: %s", error)


# Without those that the database fills.
_LENGTHS: Final = {
    each.name: each.max_length
    for each in JournalEntry._meta.local_concrete_fields
    if not each.has_db_default()
}
_NAMES: Final = tuple(_LENGTHS)
_row: Final = attrgetter(*_NAMES)


def _values(entry: JournalEntry) -> list[str | int]:
    """The values as people can read them on one line: cut, control characters escaped."""
    return [
        value if isinstance(value, int) else str(one_line(value)[: _LENGTHS[name]])
        for name, value in zip(_NAMES, _row(entry), strict=True)
    ]


def _line(entry: JournalEntry) -> str:
    line = {"time": clock.now().isoformat(), **dict(zip(_NAMES, _values(entry), strict=True))}
    return f"{msgspec.json.encode(line).decode()}\n"


def login() -> str:
    """The operating system's name of the user who runs this process."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run under a number without a name
        return str(os.getuid())


def record(action: Action, query: str, reason: str = "", **subject: str) -> None:
    """Add a row for the user of the operating system. subject: entity, entity_id, application.

    Raises JournalError, unless ANNALS_JOURNAL_FAILURE lets the command go on."""
    entry = JournalEntry(
        login=login(),
        identity=f"uid:{os.getuid()}",
        actor=Actor.OPERATOR,
        address=LOCAL,
        action=action,
        outcome=Outcome.SHOWN,
        status=0,
        query=query,
        reason=reason,
        **subject,
    )
    try:
        write([entry], sys.stderr)
    except JournalError as error:
        if settings.ANNALS.journal_failure != "answer":
            raise JournalError(f"{error}; nothing was done") from error
        log.warning("%s", error)


def on_roles(user: User, before: Collection[str], after: Collection[str]) -> None:
    """In the transaction that changes the roles, as a provider says. Raises JournalError."""
    was, now = (", ".join(sorted(each)) or "none" for each in (before, after))
    row = JournalEntry(
        login=user.get_username(),
        identity=identity_of(user.pk),
        actor=Actor.PERSON,
        action=Action.OTHER,
        outcome=Outcome.SHOWN,
        status=0,
        query=f"roles: {was} -> {now}",
    )
    write([row], sys.stdout)


def on_mark(entity: str, path: str, before: bool, after: bool, **_: Any) -> None:
    was, now = ("marked" if each else "not marked" for each in (before, after))
    record(Action.OTHER, f"labels load: {path}: {was} -> {now}", entity=entity)


def on_export(entity: Entity, days: Sequence[Day], options: dict[str, Any], **_: Any) -> None:
    span = f"{days[0].day} to {days[-1].day}" if days else "no days"
    target = options["output"] or "standard output"
    text = f"export {entity.name} {span} as {options['format']} to {target}"
    unmasked = options["unmasked"]
    if unmasked:
        text += ", unmasked"
    record(Action.EXPORT, text, unmasked or options["reason"], entity=entity.name)


REFUSED, ANSWERED = (metrics.JOURNAL_FAILURES.labels(each) for each in ("refused", "answered"))


class Journal:
    """Middleware: writes a row of each look, before the first byte of a streamed answer. Its place
    is outside of sessions and views, and inside of what gives the request its id."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        look = request.look = Look()  # type: ignore[attr-defined] # for history.requests.accesses.of
        response = self.get_response(request)
        action = action_of(request)
        # OPTIONS asks which methods there are. A refused one is an attempt.
        methods = request.method == "OPTIONS" and response.status_code == 204
        if action is None or methods:
            return response
        try:
            rows = list(entries(request, response, action, look))
            # Nobody was shown nothing: the log of requests has it.
            if rows[0].actor is not Actor.NOBODY or rows[0].outcome is Outcome.SHOWN:
                write(rows, sys.stdout)
        except (JournalError, Error, psycopg.Error) as error:
            return _without_journal(request, response, error, look)
        return response


def _without_journal(
    request: HttpRequest, response: HttpResponse, error: Exception, look: Look
) -> HttpResponse:
    log.error("an answer is not in the access journal: %s", describe(error))
    if settings.ANNALS.journal_failure == "answer" and not look.unmasked:
        ANSWERED.inc()
        return response
    REFUSED.inc()
    if response.status_code >= 500:
        return response  # it shows nothing, and says more of the cause
    response.close()
    if request.path_info.startswith("/api/"):
        return errors.answer(errors.JournalUnavailableError(str(error)), {"request": request})
    page = render_to_string("access/no_journal.html", request=None)
    return HttpResponse(page, status=503, headers={"Retry-After": str(errors.RETRY_SECONDS)})
