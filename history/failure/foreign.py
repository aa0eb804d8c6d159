"""Why PostgreSQL refused a connection, if its messages are in another language than English.

libpq gives no SQLSTATE for a connection that never was, only the text of the server in the language
of its `lc_messages`. The trace of libpq has the SQLSTATE, so the connection is tried once more with
one. libpq before 18 does not trace the answer to a login: then the text remains.
"""

from __future__ import annotations

import os
import re
import select
import time
from typing import Final

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

SECONDS: Final = 5.0
# "failed: ВАЖНО:  text": a severity of the server, which two spaces follow.
_FOREIGN: Final = re.compile(r"failed: (?!FATAL:|ERROR:|PANIC:)[^\n:]{1,40}:  \S")
_ANSWER: Final = re.compile(r'\tErrorResponse\t.*? C "(\w{5})".*? R "(\w+)"', re.DOTALL)
# By SQLSTATE, or by SQLSTATE and the routine of the server where one code has several meanings.
_ENGLISH: Final = {
    "28P01": "password authentication failed",
    "28000": "authentication failed",
    "28000 ClientAuthentication": "no pg_hba.conf entry",
    "28000 InitializeSessionUserId": "role does not exist",
    "3D000": "database does not exist",
    "53300": "too many connections",
    "57P03": "starting up",
}
_known: dict[str, str] = {}


def text_of(error: BaseException) -> str:
    """The text of an error of connecting, in English if its meaning is known. May connect again,
    once for each text."""
    text = str(error)
    if _FOREIGN.search(text) is None or not isinstance(error, psycopg.OperationalError):
        return text
    if text not in _known and (meaning := _meaning(error)) is not None:
        if len(_known) > 100:
            _known.clear()
        _known[text] = f"connection failed: FATAL:  {meaning}"
    return _known.get(text, text)


def _meaning(error: psycopg.OperationalError) -> str | None:
    if error.pgconn is None or not hasattr(os, "memfd_create"):
        return None
    given = {each.keyword.decode(): each.val.decode() for each in error.pgconn.info if each.val}
    try:
        answers = _ANSWER.findall(_traced(make_conninfo("", **given)))
    except (psycopg.Error, OSError):
        return None
    if not answers:
        return None
    code, routine = answers[-1]
    return _ENGLISH.get(f"{code} {routine}", _ENGLISH.get(code))


def _traced(conninfo: str) -> str:
    """What client and server said. The trace can have the password, so it is in memory only."""
    file = os.memfd_create("trace")
    try:
        tried = pq.PGconn.connect_start(conninfo.encode())
        tried.trace(file)
        until = time.monotonic() + SECONDS
        done = (pq.PollingStatus.OK, pq.PollingStatus.FAILED)
        while (state := tried.connect_poll()) not in done and time.monotonic() < until:
            reading = [tried.socket] if state == pq.PollingStatus.READING else []
            writing = [tried.socket] if state == pq.PollingStatus.WRITING else []
            select.select(reading, writing, [], SECONDS)
        tried.untrace()
        tried.finish()
        os.lseek(file, 0, os.SEEK_SET)
        with os.fdopen(os.dup(file), "rb") as trace:
            return trace.read().decode(errors="replace")
    finally:
        os.close(file)
