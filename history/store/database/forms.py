"""The forms of data: which one this release reads, and which connected processes cannot read it.

A form of data may be written once every connected process can read it. Two facts show that:

- Each session of Annals announces its form by an advisory lock that it keeps until it ends.
- Before the first row of a form is written, the database is marked with the form. A session that is
opened later sees the mark, and refuses to work if the form is newer than its own.

So a process of an older release either has a session now, which `activate()` finds, or its next
session sees the mark. The mark is a row of `django_migrations`, because release 0.1.0 looks there:
a name with this ending keeps its consumers and its web from starting.
"""

import time
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from history.common.complaints import ExplainedError

# Raise it by one with the first release that writes rows which earlier releases cannot read.
# 1: each version is a row. 2: versions of a finished day can be in blocks.
FORM: Final = 2

SPACE: Final = 0x41_4E_4E_46  # "ANNF": the first key of the advisory locks that announce a form
_MARKED: Final = r"^form_(\d+)_needs_stop$"
# A session of this release announces itself right after it was opened. Packing waits ANNOUNCED_S
# for that, pages and commands that only show who is connected wait SHOWN_S.
ANNOUNCED_S: Final = 5.0
SHOWN_S: Final = 0.5
_LOOK_AGAIN_S: Final = 0.25

_ANNOUNCE: Final = f"SELECT pg_advisory_lock_shared({SPACE}, {FORM})".encode()
# A new database has no such table, and a login without rights may not read it.
_MAY_LOOK: Final = """
SELECT coalesce(has_table_privilege(to_regclass('public.django_migrations'), 'SELECT'), false)
"""
_MARK: Final = """
SELECT max((regexp_match(name, %s))[1]::int) FROM public.django_migrations WHERE app = 'history'
"""
# Every login may read these columns. The address of another login's session is empty unless the
# reader has pg_read_all_stats. DATABASE_URL may give a process another application_name, so
# sessions of the logins of the web and of the consumer count, too. The login that created these two
# roles also has them, with ADMIN OPTION: it is left out.
_UNREADY: Final = """
SELECT a.pid, coalesce(a.application_name, ''), a.usename, coalesce(host(a.client_addr), '')
FROM pg_stat_activity a
WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
    AND coalesce(a.backend_type, '') <> 'parallel worker'
    AND (a.application_name LIKE 'annals%%' OR EXISTS (
        SELECT FROM pg_auth_members m JOIN pg_roles r ON r.oid = m.roleid
        WHERE m.member = a.usesysid AND NOT m.admin_option
            AND r.rolname IN ('annals_web', 'annals_consumer')))
    AND NOT EXISTS (
        SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
        WHERE l.pid = a.pid AND l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
            AND d.datname = a.datname AND l.classid = %(space)s AND l.objid >= %(form)s)
ORDER BY a.pid
"""


class NewerFormError(psycopg.OperationalError):
    """Raised when the database has rows of a newer release that this one cannot read."""


class EarlierReleaseError(ExplainedError, RuntimeError):
    """Raised when sessions of an earlier release are connected: they cannot read this form.

    The message names them and says what to do.
    """


@dataclass(frozen=True, slots=True)
class UnreadySession:
    """A session that has not announced the form of this release."""

    pid: int
    application: str
    login: str
    address: str  # empty if not known

    def __str__(self) -> str:
        place = f", from {self.address}" if self.address else ""
        return f"pid {self.pid} ({self.application or 'no application_name'}, {self.login}{place})"


def open_session(connection: psycopg.Connection[Any]) -> None:
    """Announce that the session reads the form of this release, then look for a newer form.

    Raises:
        NewerFormError: The database is marked with a form that this release does not read.
    """
    announce(connection)
    if connection.execute(_MAY_LOOK).fetchone() != (True,):
        return  # the checks of migrations and rights report this
    if (marked := find_mark(connection)) is not None and marked > FORM:
        raise NewerFormError(
            f"a newer release has written rows of form {marked} into this database, and this one"
            f" reads forms up to {FORM}: start the newer release, or go back as docs/upgrade.md"
            " says"
        )


def announce(connection: psycopg.Connection[Any]) -> None:
    """Announce the form of this release until the session ends. Does not begin a transaction.

    Raises:
        psycopg.OperationalError: The server did not answer as expected.
    """
    # By libpq itself: psycopg would begin a transaction, which a pool does not allow at this place.
    result = connection.pgconn.exec_(_ANNOUNCE)
    if result.status != psycopg.pq.ExecStatus.TUPLES_OK:
        raise psycopg.OperationalError(result.get_error_message())


def find_mark(connection: psycopg.Connection[Any]) -> int | None:
    """Return the newest form of rows that the database may have; None if all are plain rows."""
    row = connection.execute(_MARK, [_MARKED]).fetchone()
    return None if row is None else row[0]


def find_unready(
    connection: psycopg.Connection[Any], wait_s: float = SHOWN_S
) -> list[UnreadySession]:
    """Return the sessions of Annals in this database that cannot read the form of this release.

    Args:
        wait_s: How many seconds such a session has to announce itself or to end: it may have been
            opened just now. If all are announced, the function does not wait.
    """
    until = time.monotonic() + wait_s
    sessions = _list_unannounced(connection)
    while sessions and time.monotonic() < until:
        time.sleep(_LOOK_AGAIN_S)
        pids = {session.pid for session in sessions}
        sessions = [session for session in _list_unannounced(connection) if session.pid in pids]
    return sessions


def explain_wait(sessions: list[UnreadySession]) -> str:
    """Return what packing waits for, as a sentence for people; empty if it does not wait."""
    if not sessions:
        return ""
    return (
        "nothing is packed while a process of an earlier release is connected, which cannot read"
        f" packed days: {', '.join(map(str, sessions))}. Replace it by this release, or end it;"
        " the next `annals partitions maintain` packs then"
    )


def activate(connection: psycopg.Connection[Any]) -> None:
    """Mark the database with the form of this release, so that rows of it can be written.

    Raises:
        EarlierReleaseError: A session of an earlier release is connected.
    """
    _refuse_unready(connection)
    if find_mark(connection) == FORM:
        return
    connection.execute(
        "INSERT INTO public.django_migrations (app, name, applied) VALUES ('history', %s, now())",
        [f"form_{FORM}_needs_stop"],
    )
    try:
        # An earlier release that connected before the mark has not seen it.
        _refuse_unready(connection)
    except EarlierReleaseError:
        withdraw(connection)
        raise


def withdraw(connection: psycopg.Connection[Any]) -> None:
    """Remove the mark, so that the earlier release can work with the database again.

    The database must not have rows in the form of this release any more.
    """
    connection.execute(
        "DELETE FROM public.django_migrations WHERE app = 'history' AND name = %s",
        [f"form_{FORM}_needs_stop"],
    )


def _refuse_unready(connection: psycopg.Connection[Any]) -> None:
    """Raise EarlierReleaseError if a session does not announce the form of this release."""
    if sessions := find_unready(connection, ANNOUNCED_S):
        raise EarlierReleaseError(explain_wait(sessions))


def _list_unannounced(connection: psycopg.Connection[Any]) -> list[UnreadySession]:
    rows = connection.execute(_UNREADY, {"space": SPACE, "form": FORM}).fetchall()
    return [UnreadySession(*row) for row in rows]
