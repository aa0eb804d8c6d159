"""The journal as a CSV file: one at a time, within ANNALS_DOWNLOAD_SECONDS, never cut silently."""

from __future__ import annotations

import contextlib
import csv
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import psycopg
from django.conf import settings
from django.db import Error, connection
from django.http import StreamingHttpResponse

from annals.access.journal import read
from annals.access.journal.lines import COLUMNS, cell
from annals.access.journal.read import Filters
from annals.access.models import JournalEntry
from history import shares
from history.deadline import TooLongError
from history.shares import BusyError

# The last line of a file that ends too early; the connection is reset after it.
NOT_COMPLETE: Final = "NOT COMPLETE"
# With the id of the login, the key of an advisory lock. No other lock has this first number.
LOCK: Final = 0x51075


def answer(filters: Filters, login: int) -> StreamingHttpResponse:
    """All rows of the filter, for the login with this id. Raises BusyError while another download
    runs in this process, or one of this login anywhere."""
    made = _Download(_text(filters), login)
    made.headers["Content-Disposition"] = 'attachment; filename="annals-journal.csv"'
    return made


class _Download(StreamingHttpResponse):
    """A download has its place until its last byte, or until it ends early."""

    def __init__(self, text: Iterator[str], login: int) -> None:
        with ExitStack() as places:
            places.enter_context(shares.download())
            places.enter_context(_only_one(login))
            self._places = places.pop_all()
        super().__init__(text, content_type="text/csv; charset=utf-8")

    def close(self) -> None:
        self._places.close()
        super().close()


@contextmanager
def _only_one(login: int) -> Iterator[None]:
    """Of all web processes. PostgreSQL forgets the lock of a process that is killed."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", [LOCK, login])
        if cursor.fetchone() != (True,):
            raise BusyError
    try:
        yield
    finally:
        # Without its connection the lock is gone too.
        with contextlib.suppress(Error, psycopg.Error), connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s, %s)", [LOCK, login])


class _Echo:
    """A file for the csv module that gives back what is written."""

    def write(self, text: str) -> str:
        return text


def _within(end: float, rows: Iterator[JournalEntry]) -> Iterator[JournalEntry]:
    """These rows until a time.monotonic(). Then raises TooLongError."""
    for row in rows:
        if time.monotonic() >= end:
            raise TooLongError
        yield row


def _text(filters: Filters) -> Iterator[str]:
    """The lines. Raises TooLongError, and what the database raises, after a last line that says
    that the file is not complete."""
    end = time.monotonic() + settings.ANNALS.download_seconds
    writer = csv.writer(_Echo())
    yield "\N{ZERO WIDTH NO-BREAK SPACE}" + writer.writerow(COLUMNS)  # so Excel reads UTF-8
    try:
        for row in _within(end, read.rows(filters)):
            yield writer.writerow([cell(row, name) for name in COLUMNS])
    except Exception:
        yield writer.writerow([NOT_COMPLETE])
        raise
