"""Writes rows of the journal: in one statement, within a second or not at all."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, Final

import psycopg
from django.db import Error, connection

from annals.access.journal import send
from annals.access.journal.entry import Entry
from annals.access.models import JournalEntry
from history.error_text import describe
from history.plain_text import one_line

# A commit waits longer where a synchronous standby is away, and any answer where the network hangs.
WAIT_S: Final = 1.0
LOCK_TIMEOUT_MS: Final = 700
CANCEL_S: Final = 1.0
# After a write without an answer, one request at a time tries whether there is one again.
PAUSE_S: Final = 2.0
# Both statements go to the server in one message, and are one transaction there. The schema is
# named: a temporary table of this name would take the rows.
_INSERT: Final = (
    "SET LOCAL lock_timeout = {timeout}; INSERT INTO public.{table} ({names}) VALUES {rows}"
)


class JournalError(RuntimeError):
    """It is not known that the journal has the rows: nothing may be shown."""


@dataclass(slots=True)
class _Pause:
    """Until when no request of this process waits for the journal, but for the one that tries."""

    until: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def enter(self) -> None:
        """Raises JournalError in a pause. The first one after it begins another one."""
        now = time.monotonic()
        with self.lock:
            if now < self.until:
                raise JournalError("the database did not answer a moment ago")
            if self.until:
                self.until = now + PAUSE_S

    def begin(self) -> None:
        with self.lock:
            self.until = time.monotonic() + PAUSE_S

    def end(self) -> None:
        with self.lock:
            self.until = 0.0


_PAUSE: Final = _Pause()


def write(entries: Collection[Entry]) -> None:
    """Add rows; when this returns, they are committed, or they are part of the transaction that
    the caller has opened. Raises JournalError."""
    _PAUSE.enter()
    try:
        if connection.errors_occurred and not connection.in_atomic_block:
            # The answer itself had an error of the database; the connection may be broken. If it is
            # not, it stays: its session may have the lock of maintain's runs.
            if connection.is_usable():
                connection.errors_occurred = False
            else:
                connection.close()
        connection.ensure_connection()
        own: psycopg.Connection[Any] = connection.connection
        try:
            with connection.wrap_database_errors:
                send.statement(own, _statement(own, entries), WAIT_S)
        except send.NoAnswerError as error:
            _PAUSE.begin()
            _give_up(own)
            raise JournalError(str(error)) from None
    except (Error, psycopg.Error) as error:
        raise JournalError(describe(error)) from error
    _PAUSE.end()


def _give_up(own: psycopg.Connection[Any]) -> None:
    """End the statement, as far as the server can be reached, and the connection."""
    with contextlib.suppress(psycopg.Error):
        own.cancel_safe(timeout=CANCEL_S)
    own.close()
    connection.close()


def _statement(own: psycopg.Connection[Any], entries: Collection[Entry]) -> str:
    row = f"({', '.join(['%s'] * len(_NAMES))})"
    text = _INSERT.format(
        timeout=LOCK_TIMEOUT_MS,
        table=JournalEntry._meta.db_table,
        names=", ".join(_NAMES),
        rows=", ".join([row] * len(entries)),
    )
    values = [value for entry in entries for value in _values(entry)]
    return psycopg.ClientCursor(own).mogrify(text, values)


_NAMES: Final = tuple(each.name for each in fields(Entry))
_given: Final = attrgetter(*_NAMES)
_LENGTHS: Final = {
    each.name: each.max_length for each in JournalEntry._meta.fields if each.name in _NAMES
}


def _values(entry: Entry) -> list[str | int]:
    """The values as people can read them on one line: cut, control characters escaped."""
    return [
        value if isinstance(value, int) else str(one_line(value)[: _LENGTHS[name]])
        for name, value in zip(_NAMES, _given(entry), strict=True)
    ]
