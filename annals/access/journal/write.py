"""Writes rows of the journal, in one statement, within a second or not at all; and those of
operators, for what they do with commands on the server: exports, looks into the journal."""

from __future__ import annotations

import logging
import os
import pwd
from collections.abc import Collection, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import psycopg
from django.conf import settings
from django.db import Error, connection

from annals.access.journal.entry import Entry
from annals.access.journal.words import Action, Actor, Outcome
from annals.access.models import JournalEntry
from history.base.error_text import describe
from history.base.plain_text import one_line
from history.base.signals import ExportRefusedError
from history.entities import Entity

if TYPE_CHECKING:
    from history.export.days import Day

LOCK_TIMEOUT_MS: Final = 700
STATEMENT_TIMEOUT_MS: Final = 1000
LOCAL: Final = "local"
# They go to the server in one message, and are one transaction there. The schema is named: a
# temporary table of this name would take the rows.
_TIMEOUTS: Final = (
    f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS};"
    f" SET LOCAL statement_timeout = {STATEMENT_TIMEOUT_MS};"
)
_INSERT: Final = "INSERT INTO public.{table} ({names}) VALUES {rows}"

log = logging.getLogger(__name__)


class JournalError(RuntimeError):
    """It is not known that the journal has the rows: nothing may be shown."""


def write(entries: Collection[Entry]) -> None:
    """Add rows; when this returns, they are committed, or they are part of the transaction that
    the caller has opened. Raises JournalError."""
    row = f"({', '.join(['%s'] * len(_NAMES))})"
    insert = _INSERT.format(
        table=JournalEntry._meta.db_table,
        names=", ".join(_NAMES),
        rows=", ".join([row] * len(entries)),
    )
    values = [value for entry in entries for value in _values(entry)]
    try:
        if connection.errors_occurred and not connection.in_atomic_block:
            # The answer itself had an error of the database; the connection may be broken. If it is
            # not, it stays: its session may have the lock of maintain's runs.
            if connection.is_usable():
                connection.errors_occurred = False
            else:
                connection.close()
        connection.ensure_connection()
        with connection.wrap_database_errors, psycopg.ClientCursor(connection.connection) as cursor:
            cursor.execute(f"{_TIMEOUTS} {insert}", values)
    except (Error, psycopg.Error) as error:
        raise JournalError(describe(error)) from error


_NAMES: Final = tuple(each.name for each in fields(Entry))
_row: Final = attrgetter(*_NAMES)
_LENGTHS: Final = {
    each.name: each.max_length for each in JournalEntry._meta.fields if each.name in _NAMES
}


def _values(entry: Entry) -> list[str | int]:
    """The values as people can read them on one line: cut, control characters escaped."""
    return [
        value if isinstance(value, int) else str(one_line(value)[: _LENGTHS[name]])
        for name, value in zip(_NAMES, _row(entry), strict=True)
    ]


def login() -> str:
    """The operating system's name of the user who runs this process."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run under a number without a name
        return str(os.getuid())


def record(action: Action, query: str, reason: str = "", **subject: str) -> None:
    """Add a row for the user of the operating system. subject: entity, entity_id, application.

    Raises JournalError, unless ANNALS_JOURNAL_FAILURE lets the command go on."""
    entry = Entry(
        login=login(),
        identity=f"uid:{os.getuid()}",
        actor=Actor.OPERATOR,
        address=LOCAL,
        request_id="",
        action=action,
        outcome=Outcome.SHOWN,
        status=0,
        query=query,
        reason=reason,
        **subject,
    )
    try:
        write([entry])
    except JournalError as error:
        if settings.ANNALS.journal_failure != "answer":
            raise
        log.warning("the access journal cannot be written: %s", error)


def on_export(entity: Entity, days: Sequence[Day], options: dict[str, Any], **_: Any) -> None:
    span = f"{days[0].day} to {days[-1].day}" if days else "no days"
    target = options["output"] or "standard output"
    text = f"export {entity.name} {span} as {options['format']} to {target}"
    unmasked = options["unmasked"]
    if unmasked:
        text += ", unmasked"
    try:
        record(Action.EXPORT, text, unmasked or options["reason"], entity=entity.name)
    except JournalError as error:
        raise ExportRefusedError(f"the access journal cannot be written: {error}") from None
