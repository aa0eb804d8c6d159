"""The logins of the processes: who is one, and what limits each has.

A limit of a role does not pass to its members, so each login has its own. PostgreSQL ends what
lasts longer; a process can set another time for itself, and the consumer does
(ingest.store.session). It cannot set another number of connections.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from django.db import connection
from psycopg import sql

from annals.access.grants import CONSUMER, WEB

OWNER: Final = "owner"


@dataclass(frozen=True, slots=True)
class Limits:
    """connections: of the login, from all machines. settings: those of its sessions."""

    connections: int
    settings: Mapping[str, str]


# Together fewer connections than PostgreSQL's default of 100, less 3 for superusers.
LIMITS: Final[Mapping[str, Limits]] = {
    # Two processes with 18 connections each, and as many of the old ones during a reload.
    WEB: Limits(
        72,
        {
            "statement_timeout": "1min",
            "idle_in_transaction_session_timeout": "1min",
            "lock_timeout": "10s",
        },
    ),
    CONSUMER: Limits(
        18,
        {
            "statement_timeout": "5min",
            "idle_in_transaction_session_timeout": "1min",
            "lock_timeout": "10s",
        },
    ),
    # An index or the archive of a day may take hours, and waits for the readers of a table: only
    # what nobody waits for any more is ended.
    OWNER: Limits(7, {"statement_timeout": "24h", "idle_in_transaction_session_timeout": "1h"}),
}

# Logins with the limits that they have: members of the roles, and the owner of the tables. The
# owner is a member too where it has created the roles. No limit counts for a superuser.
_LOGINS = """
WITH owner AS (SELECT relowner AS oid FROM pg_class WHERE oid = 'auth_user'::regclass)
SELECT r.rolname, CASE WHEN r.oid = o.oid THEN %s ELSE g.rolname END, r.rolconnlimit,
    coalesce(r.rolconfig, '{}')
FROM owner o
JOIN pg_roles r ON r.rolcanlogin AND NOT r.rolsuper
LEFT JOIN pg_auth_members m ON m.member = r.oid
LEFT JOIN pg_roles g ON g.oid = m.roleid
WHERE r.oid = o.oid OR g.rolname = ANY(%s)
GROUP BY 1, 2, 3, 4 ORDER BY 1, 2
"""

_RIGHTS = """
SELECT g.name FROM pg_roles r, (
    SELECT %s AS name, relowner AS oid FROM pg_class WHERE oid = 'auth_user'::regclass
    UNION ALL SELECT rolname, oid FROM pg_roles WHERE rolname = ANY(%s)
) g
WHERE r.rolname = %s AND pg_has_role(r.oid, g.oid, 'MEMBER')
ORDER BY 1
"""


def limits() -> Iterator[sql.Composed]:
    """SQL that gives each login the limits that it has no value of; what somebody set stays."""
    for login, role, connections, configured in _logins():
        name = sql.Identifier(login)
        wanted = LIMITS[role]
        has = {text.partition("=")[0] for text in configured}
        for setting, value in wanted.settings.items():
            if setting not in has:
                yield sql.SQL("ALTER ROLE {} SET {} = {}").format(
                    name, sql.Identifier(setting), sql.Literal(value)
                )
        if connections < 0:
            yield sql.SQL("ALTER ROLE {} CONNECTION LIMIT {}").format(
                name, sql.Literal(wanted.connections)
            )


def connections() -> int:
    """How many connections the logins may have together. A login without a limit counts with that
    which `limits` would give it. 0 before the first migration."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('auth_user') IS NOT NULL")
        if not (cursor.fetchone() or (False,))[0]:
            return 0
    most: dict[str, int] = {}
    for login, role, limit, _ in _logins():
        allowed = limit if limit >= 0 else LIMITS[role].connections
        most[login] = max(most.get(login, 0), allowed)
    return sum(most.values())


def roles() -> set[str]:
    """Those of WEB, CONSUMER and OWNER that a login has the rights of. The owner of the tables
    counts as OWNER only, and no superuser counts."""
    return {role for _, role, _, _ in _logins()}


def other_roles(role: str, login: str) -> list[str]:
    """Whose rights a login has already, apart from those of this role: WEB, CONSUMER, OWNER."""
    with connection.cursor() as cursor:
        cursor.execute(_RIGHTS, [OWNER, [WEB, CONSUMER], login])
        return [name for (name,) in cursor.fetchall() if name != role]


def make(role: str, login: str, password: str) -> Iterator[sql.Composed]:
    """SQL that creates a login of a role, or gives it this password. Needs CREATEROLE. The SQL has
    the password only as PostgreSQL stores it."""
    connection.ensure_connection()
    stored = connection.connection.pgconn.encrypt_password(
        password.encode(), login.encode(), b"scram-sha-256"
    )
    name = sql.Identifier(login)
    yield sql.SQL(
        "DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = {text}) THEN"
        " CREATE ROLE {login}; END IF; END $$"
    ).format(text=sql.Literal(login), login=name)
    yield sql.SQL("ALTER ROLE {} LOGIN PASSWORD {}").format(name, sql.Literal(stored.decode()))
    yield sql.SQL("GRANT {} TO {}").format(sql.Identifier(role), name)


def _logins() -> list[tuple[str, str, int, list[str]]]:
    with connection.cursor() as cursor:
        cursor.execute(_LOGINS, [OWNER, [WEB, CONSUMER]])
        found: list[tuple[str, str, int, list[str]]] = cursor.fetchall()
    return found
