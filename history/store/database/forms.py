"""Keeps Annals from writing rows in a form of data that a connected process cannot read.

A new form of data is written only after all connected processes can read this form. Two rules
ensure this:

- Each session of Annals holds an advisory lock until the session ends. The key of the lock is the
newest form of data that the session can read.
- Before the first row in a form is written, the database is marked with the form. A session that is
opened later sees the mark. If the session cannot read the form, it refuses to work.

So a process of an older release either has a session now, which `activate()` finds, or its next
session sees the mark. The mark is a row of `django_migrations` with a name that ends in
`_needs_stop`. Release 0.1.0 looks there too: its consumers and its web do not start if they see a
name with this ending.
"""

import time
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from history.common.explained_errors import ExplainedError

# The form of data of this release. Raise FORM by one with the first release that writes rows which
# earlier releases cannot read.
# 1: each version is a row. 2: versions of a finished day can be in blocks.
FORM: Final = 2

SPACE: Final = 0x41_4E_4E_46  # "ANNF": the first key of the advisory locks that announce a form
_MARKED: Final = r"^form_(\d+)_needs_stop$"
# A session of this release announces itself right after it was opened. Packing waits ANNOUNCED_S
# for that, pages and commands that only show who is connected wait SHOWN_S.
ANNOUNCED_S: Final = 5.0
SHOWN_S: Final = 0.5
_POLL_S: Final = 0.25

_ANNOUNCE: Final = f"SELECT pg_advisory_lock_shared({SPACE}, {FORM})".encode()
# Returns whether the table of the mark exists and the login may read it. A new database does not
# have the table.
_MAY_READ_MARK: Final = """
SELECT coalesce(has_table_privilege(to_regclass('public.django_migrations'), 'SELECT'), false)
"""
# Returns the form with which the database is marked.
_MARK: Final = """
SELECT max((regexp_match(name, %s))[1]::int) FROM public.django_migrations WHERE app = 'history'
"""
# Returns the sessions of Annals that have not announced the form of this release.
# Every login may read these columns. The address of another login's session is empty unless the
# reader has pg_read_all_stats. DATABASE_URL may give a process another application_name, so
# sessions of the logins of the web and of the consumer count, too. The login that created the roles
# of these two is also a member of them, with ADMIN OPTION: it is left out.
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
    """Raised when the database has rows in a form that only a newer release can read."""


class EarlierReleaseError(ExplainedError, RuntimeError):
    """Raised when connected sessions of an earlier release cannot read this release's form of data.

    The message names the sessions and says what to do.
    """


@dataclass(frozen=True, slots=True)
class UnreadySession:
    """A database session of Annals that does not announce this release's form of data.

    A session announces a form by an advisory lock (see `announce`). A session of an earlier release
    announces an older form or none; a session that was opened just now has not done so yet.
    """

    pid: int
    application: str
    login: str
    address: str  # empty if not known

    def __str__(self) -> str:
        place = f", from {self.address}" if self.address else ""
        return f"pid {self.pid} ({self.application or 'no application_name'}, {self.login}{place})"


def open_session(connection: psycopg.Connection[Any]) -> None:
    """Take the session's advisory lock, and check that this release can read the database's rows.

    The lock shows other sessions which form of data this session can read (see `announce`).

    Raises:
        NewerFormError: The database is marked with a form that this release does not read.
    """
    announce(connection)
    if connection.execute(_MAY_READ_MARK).fetchone() != (True,):
        return  # the checks of migrations and rights report this
    if (marked := find_mark(connection)) is not None and marked > FORM:
        raise NewerFormError(
            f"a newer release has written rows of form {marked} into this database, and this "
            f"release reads forms up to {FORM}: start the newer release, or let the newer release "
            f"convert the rows to form {FORM} first, as docs/upgrade.md says"
        )


def announce(connection: psycopg.Connection[Any]) -> None:
    """Take the advisory lock that shows which form of data this session can read.

    The session holds the lock until it ends. No transaction is begun.

    Raises:
        psycopg.OperationalError: The server did not answer as expected.
    """
    # Uses libpq directly: psycopg would begin a transaction, and the pool does not allow one here.
    result = connection.pgconn.exec_(_ANNOUNCE)
    if result.status != psycopg.pq.ExecStatus.TUPLES_OK:
        raise psycopg.OperationalError(result.get_error_message())


def find_mark(connection: psycopg.Connection[Any]) -> int | None:
    """Return the form with which the database is marked; None if all its rows are plain rows."""
    row = connection.execute(_MARK, [_MARKED]).fetchone()
    return None if row is None else row[0]


def find_unready(
    connection: psycopg.Connection[Any], wait_s: float = SHOWN_S
) -> list[UnreadySession]:
    """Return the sessions of Annals in this database that cannot read the form of this release.

    Args:
        wait_s: How many seconds to wait for these sessions to announce their form or to end. A
            session that was opened just now needs a moment for it.
    """
    until = time.monotonic() + wait_s
    sessions = _list_unannounced(connection)
    while sessions and time.monotonic() < until:
        time.sleep(_POLL_S)
        pids = {session.pid for session in sessions}
        sessions = [session for session in _list_unannounced(connection) if session.pid in pids]
    return sessions


def explain_wait(sessions: list[UnreadySession]) -> str:
    """Return a sentence that names the sessions that prevent packing; empty if there are none."""
    if not sessions:
        return ""
    return (
        "nothing is packed while a process of an earlier release is connected, which cannot read"
        f" packed days: {', '.join(map(str, sessions))}. Replace it by this release, or end it;"
        " the next `annals partitions maintain` packs then"
    )


def activate(connection: psycopg.Connection[Any]) -> None:
    """Mark the database with the form of this release, so that rows in this form can be written.

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
        # A process of an earlier release that connected before this INSERT has not seen the mark.
        _refuse_unready(connection)
    except EarlierReleaseError:
        withdraw_mark(connection)
        raise


def withdraw_mark(connection: psycopg.Connection[Any]) -> None:
    """Delete the row of django_migrations that marks the database with the form of this release.

    Processes of the earlier release can then work with the database again. Call this only when no
    row is in the form of this release any more.
    """
    connection.execute(
        "DELETE FROM public.django_migrations WHERE app = 'history' AND name = %s",
        [f"form_{FORM}_needs_stop"],
    )


def _refuse_unready(connection: psycopg.Connection[Any]) -> None:
    """Raise EarlierReleaseError if `find_unready` finds a session of an earlier release."""
    if sessions := find_unready(connection, ANNOUNCED_S):
        raise EarlierReleaseError(explain_wait(sessions))


def _list_unannounced(connection: psycopg.Connection[Any]) -> list[UnreadySession]:
    rows = connection.execute(_UNREADY, {"space": SPACE, "form": FORM}).fetchall()
    return [UnreadySession(*row) for row in rows]
