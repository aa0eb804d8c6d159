"""Writes all journal entries of a request in one statement that takes at most a second.

If they cannot be written, ANNALS_JOURNAL_FAILURE decides whether the request shows anything.
"""

from __future__ import annotations

import logging
import os
import pwd
import sys
from collections.abc import Collection, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TextIO

import msgspec
import psycopg
from django.conf import settings
from django.contrib.auth.models import User
from django.db import Error, connection

from annals.access.journal.actions import (
    AccessAction,
    AccessOutcome,
    ActorKind,
)
from annals.access.models import JournalEntry, format_user_identity
from history.common import clock
from history.common.error_text import describe
from history.common.plain_text import to_one_line
from history.common.signals import NotJournaledError
from history.kinds.entities import EntityKind

if TYPE_CHECKING:
    from history.retention.export.days import ExportDay

log = logging.getLogger(__name__)
LOCK_TIMEOUT_MS: Final = 700
STATEMENT_TIMEOUT_MS: Final = 1000
LOCAL_ADDRESS: Final = "local"
# Sent together with the INSERT in one message, which PostgreSQL runs as one transaction. The INSERT
# names the schema: otherwise a temporary table of the same name would get the rows.
_SET_TIMEOUTS: Final = (
    f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS};"
    f" SET LOCAL statement_timeout = {STATEMENT_TIMEOUT_MS};"
)
# Sent after the INSERT if the caller has an open transaction, because this transaction goes on.
_RESET_TIMEOUTS: Final = "SET LOCAL lock_timeout TO DEFAULT; SET LOCAL statement_timeout TO DEFAULT"
_INSERT: Final = "INSERT INTO public.{table} ({names}) VALUES {rows}"


class JournalError(NotJournaledError):
    """Raised if it is not certain that all entries of a request are in the journal.

    The request must then show nothing.
    """


def write_entries(entries: Collection[JournalEntry], output: TextIO) -> None:
    """Write entries, and commit them unless the caller has an open transaction.

    Args:
        entries: The entries of one request.
        output: Gets the entries as lines of JSON, if ANNALS_JOURNAL_LOG is set.

    Raises:
        JournalError: It is not certain that the entries are in the journal.
    """
    placeholders = f"({', '.join(['%s'] * len(_COLUMN_NAMES))})"
    insert = _INSERT.format(
        table=JournalEntry._meta.db_table,
        names=", ".join(_COLUMN_NAMES),
        rows=", ".join([placeholders] * len(entries)),
    )
    values = [value for entry in entries for value in _get_values(entry)]
    try:
        if connection.errors_occurred and not connection.in_atomic_block:
            # After a database error. A usable connection is kept, because it may hold a lock.
            if connection.is_usable():
                connection.errors_occurred = False
            else:
                connection.close()
        connection.ensure_connection()
        with connection.wrap_database_errors, psycopg.ClientCursor(connection.connection) as cursor:
            reset = _RESET_TIMEOUTS if connection.in_atomic_block else ""
            cursor.execute(f"{_SET_TIMEOUTS} {insert}; {reset}", values)
    except (Error, psycopg.Error) as error:
        raise JournalError(f"the access journal cannot be written: {describe(error)}") from error
    if settings.ANNALS.journal_log:
        try:
            output.write("".join(map(_encode_line, entries)))
            output.flush()
        except OSError as error:
            log.warning("entries of the access journal cannot be written to the log: %s", error)


# The lengths of the columns that the database does not fill itself.
_COLUMN_LENGTHS: Final = {
    label.name: label.max_length
    for label in JournalEntry._meta.local_concrete_fields
    if not label.has_db_default()
}
_COLUMN_NAMES: Final = tuple(_COLUMN_LENGTHS)
_get_columns: Final = attrgetter(*_COLUMN_NAMES)


def _get_values(entry: JournalEntry) -> list[str | int]:
    """Return the values of _COLUMN_NAMES. Put texts on one line, and cut them to column length."""
    return [
        value if isinstance(value, int) else str(to_one_line(value)[: _COLUMN_LENGTHS[name]])
        for name, value in zip(_COLUMN_NAMES, _get_columns(entry), strict=True)
    ]


def _encode_line(entry: JournalEntry) -> str:
    line = {
        "time": clock.now().isoformat(),
        **dict(zip(_COLUMN_NAMES, _get_values(entry), strict=True)),
    }
    return f"{msgspec.json.encode(line).decode()}\n"


def get_system_login() -> str:
    """Return the operating system's user that runs this process, by name or else by number."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run under a number without a name
        return str(os.getuid())


def record_operator_access(
    action: AccessAction, query: str, reason: str = "", **subject: str
) -> None:
    """Write an entry about a command, under the login of the operating system's user.

    Args:
        action: What the command accesses.
        query: The command with its arguments.
        reason: The operator's reason, in their own words.
        subject: The fields entity, entity_id and application of the entry.

    Raises:
        JournalError: The entry was not written, and ANNALS_JOURNAL_FAILURE is "refuse".
    """
    entry = JournalEntry(
        login=get_system_login(),
        identity=f"uid:{os.getuid()}",
        actor=ActorKind.OPERATOR,
        address=LOCAL_ADDRESS,
        action=action,
        outcome=AccessOutcome.SHOWN,
        status=0,
        query=query,
        reason=reason,
        **subject,
    )
    try:
        write_entries([entry], sys.stderr)
    except JournalError as error:
        if settings.ANNALS.journal_failure != "answer":
            raise JournalError(f"{error}; nothing was done") from error
        log.warning("%s", error)


def record_role_change(user: User, before: Collection[str], after: Collection[str]) -> None:
    """Write a journal entry that says that an identity provider changed the roles of a user.

    Call it in the transaction that changes the roles.

    Args:
        before: The names of the user's roles before the change.
        after: The names of the user's roles after the change.

    Raises:
        JournalError: The entry was not written.
    """
    was, now = (", ".join(sorted(role_names)) or "none" for role_names in (before, after))
    row = JournalEntry(
        login=user.get_username(),
        identity=format_user_identity(user.pk),
        actor=ActorKind.PERSON,
        action=AccessAction.OTHER,
        outcome=AccessOutcome.SHOWN,
        status=0,
        query=f"roles: {was} -> {now}",
    )
    write_entries([row], sys.stdout)


def record_mark_change(entity: str, path: str, before: bool, after: bool, **_: Any) -> None:
    was, now = ("marked" if marked else "not marked" for marked in (before, after))
    record_operator_access(
        AccessAction.OTHER, f"labels load: {path}: {was} -> {now}", entity=entity
    )


def record_export(
    entity: EntityKind, days: Sequence[ExportDay], options: dict[str, Any], **_: Any
) -> None:
    span = f"{days[0].day} to {days[-1].day}" if days else "no days"
    target = options["output"] or "standard output"
    text = f"export {entity.name} {span} as {options['format']} to {target}"
    unmasked = options["unmasked"]
    if unmasked:
        text += ", unmasked"
    record_operator_access(
        AccessAction.EXPORT, text, unmasked or options["reason"], entity=entity.name
    )
