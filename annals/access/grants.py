"""The rights of the web and of the consumer in the database: two group roles without login, whose
members are the logins of the processes; and what each login may have of the server."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, LiteralString

from django.apps import apps
from django.db import connection
from django.db.models import Model
from psycopg import sql

from annals.access.models import JournalEntry, LogoutToken
from history.database import privileges
from history.models import VERSION_MODELS
from ingest import rights
from ingest.models import Quarantined

WEB: Final = "annals_web"
CONSUMER: Final = "annals_consumer"

# What the web may do besides reading. Roles (auth_group) and break-glass logins are not among the
# tables; an entry of the admin's log can be added, never changed.
WEB_WRITES: Final[Mapping[str, str]] = {
    "history_person": "INSERT, UPDATE (full_name, kind, written_by), DELETE",
    "history_fieldlabel": "INSERT, DELETE,"
    " UPDATE (entity, path, russian, english, kind, words, sensitive)",
    # No password and no is_superuser: see _logins.
    "auth_user": "INSERT,"
    " UPDATE (username, first_name, last_name, is_staff, is_active, last_login)",
    "auth_user_groups": "INSERT, DELETE",
    "auth_user_user_permissions": "DELETE",
    "django_admin_log": "INSERT",
    # The consumer carries it out.
    "ingest_quarantine_request": "INSERT",
    "django_session": "INSERT, UPDATE (session_data, expire_date), DELETE",
    "access_identity": "INSERT, UPDATE (login)",
    "access_providersession": "INSERT, UPDATE (identity_id, provider_session, began), DELETE",
    # Of 0.1.0 alone, whose web answers until it is replaced. They go with their tables.
    "access_attempts": "SELECT, INSERT, UPDATE (failures, last), DELETE",
    "access_opened": "SELECT, INSERT (caller, application)",
    "day_share": "SELECT",
}
# The web adds to the access journal, and to the used logout tokens; nothing that it runs
# can change or remove a row, or give one another time than the database's.
WEB_INSERTS: Final = (JournalEntry, LogoutToken)
# What the web reads in part only: the columns of these tables but for the named ones.
HIDDEN_FROM_WEB: Final[tuple[tuple[type[Model], frozenset[str]], ...]] = (
    (Quarantined, frozenset({"key", "value", "headers"})),
)
# It runs with the rights of who updates the row.
_REFUSE: Final[LiteralString] = """
CREATE OR REPLACE FUNCTION annals_refuse_but_to_owner() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog AS $$ BEGIN
    IF pg_has_role((SELECT relowner FROM pg_class WHERE oid = TG_RELID), 'USAGE') THEN
        RETURN NEW;
    END IF;
    RAISE insufficient_privilege
        USING MESSAGE = 'permission denied: only the owner of the tables changes a superuser';
END $$
"""
_SUPERUSERS_STAY: Final[LiteralString] = """
CREATE OR REPLACE TRIGGER annals_superusers_stay BEFORE UPDATE ON {table} FOR EACH ROW
WHEN (OLD.is_superuser AND to_jsonb(OLD) - 'last_login' <> to_jsonb(NEW) - 'last_login')
EXECUTE FUNCTION annals_refuse_but_to_owner()
"""


def statements() -> Iterator[sql.Composed]:
    """SQL that creates the roles and replaces their grants by those of this module. The owner of
    the tables runs it, again after each migration; the first time it needs CREATEROLE."""
    for role in (WEB, CONSUMER):
        yield _create(role, "NOLOGIN")
        yield sql.SQL("REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {}").format(
            sql.Identifier(role)
        )
        yield sql.SQL("GRANT USAGE ON SCHEMA public TO {}").format(sql.Identifier(role))
    yield from _grants(of_web(), WEB)
    yield from _logins()
    yield from _grants(rights.of_consumer(), CONSUMER)
    # Repeats are compared in a temporary table, which nobody else needs.
    database = sql.Identifier(connection.settings_dict["NAME"])
    yield sql.SQL("GRANT TEMPORARY ON DATABASE {} TO {}").format(database, sql.Identifier(CONSUMER))
    yield sql.SQL("REVOKE TEMPORARY ON DATABASE {} FROM PUBLIC").format(database)


def _grants(given: Iterable[privileges.Right], role: str) -> Iterator[sql.Composed]:
    """One statement for each table."""
    tables: dict[str, dict[str, list[str]]] = {}
    for table, right, column in given:
        tables.setdefault(table, {}).setdefault(right, []).append(column)
    for table, its in sorted(tables.items()):
        listed = ", ".join(
            right if "" in columns else '{} ("{}")'.format(right, '", "'.join(columns))
            for right, columns in its.items()
        )
        yield sql.SQL("GRANT {} ON {} TO {}").format(
            sql.SQL(listed), sql.Identifier(table), sql.Identifier(role)
        )


def of_web() -> Iterator[privileges.Right]:
    """Each right of the web."""
    in_part = {model._meta.db_table for model, _ in HIDDEN_FROM_WEB}
    yield from ((table, "SELECT", "") for table in _tables() - in_part)
    for model, hidden in HIDDEN_FROM_WEB:
        table = model._meta.db_table
        yield from ((table, "SELECT", each) for each in _columns(model) if each not in hidden)
    for table, given in WEB_WRITES.items():
        yield from privileges.each(table, given)
    for model in WEB_INSERTS:
        columns = _columns(model).items()
        yield from (
            (model._meta.db_table, "INSERT", each) for each, filled in columns if not filled
        )


def _logins() -> Iterator[sql.Composed]:
    """A right to insert has to include each column that Django names. A policy says which values:
    the web makes no superuser and no login with a password."""
    table = sql.Identifier("auth_user")
    yield sql.SQL("ALTER TABLE {} ENABLE ROW LEVEL SECURITY").format(table)
    for name, policy in (
        ("annals_read", sql.SQL("FOR SELECT USING (true)")),
        ("annals_change", sql.SQL("FOR UPDATE TO {} USING (true)")),
        (
            "annals_add",
            sql.SQL(
                "FOR INSERT TO {} WITH CHECK (NOT is_superuser AND starts_with(password, '!'))"
            ),
        ),
    ):
        named = sql.Identifier(name)
        yield sql.SQL("DROP POLICY IF EXISTS {} ON {}").format(named, table)
        created = sql.SQL("CREATE POLICY {} ON {} ").format(named, table)
        yield created + policy.format(sql.Identifier(WEB))
    yield sql.SQL(_REFUSE).format()
    yield sql.SQL(_SUPERUSERS_STAY).format(table=table)


def _tables() -> set[str]:
    managed = (model for model in apps.get_models(include_auto_created=True) if model._meta.managed)
    versions = {model._meta.db_table for model in VERSION_MODELS.values()}
    return {model._meta.db_table for model in managed} | versions | {"django_migrations"}


def _columns(model: type[Model]) -> dict[str, bool]:
    """Whether the database fills it, by column."""
    fields: Iterable[Any] = model._meta.local_concrete_fields
    return {each.column: each.has_db_default() for each in fields if each.column}


def _create(role: str, option: LiteralString) -> sql.Composed:
    return sql.SQL(
        "DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = {text}) THEN"
        " CREATE ROLE {role} {option}; END IF; END $$"
    ).format(text=sql.Literal(role), role=sql.Identifier(role), option=sql.SQL(option))


# The owner of the tables, where everybody may create something: clusters of before PostgreSQL 15.
_OPEN = """
SELECT pg_get_userbyid(t.relowner) FROM pg_class t, pg_namespace n, aclexplode(n.nspacl) a
WHERE t.oid = to_regclass('public.auth_user') AND n.nspname = 'public'
    AND a.grantee = 0 AND a.privilege_type = 'CREATE'
"""


def closing() -> list[sql.Composed]:
    """SQL that takes the right to create things in the schema from everybody but the owner of the
    tables; nothing where they do not have it."""
    with connection.cursor() as cursor:
        cursor.execute(_OPEN)
        row = cursor.fetchone()
    if row is None:
        return []
    return [
        sql.SQL("GRANT CREATE ON SCHEMA public TO {}").format(sql.Identifier(row[0])),
        sql.SQL("REVOKE CREATE ON SCHEMA public FROM PUBLIC").format(),
    ]


def missing() -> list[str]:
    """What the login of this process lacks of the web's rights, for example "INSERT on
    access_journal.login". One query. Raises the errors of the database."""
    statement, values = privileges.missing(of_web())
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return [text for (text,) in cursor.fetchall()]


OWNER: Final = "owner"


@dataclass(frozen=True, slots=True)
class Limits:
    """connections: of the login, from all machines. settings: those of its sessions."""

    connections: int
    settings: Mapping[str, str]


_OF_PROCESSES: Final = {"idle_in_transaction_session_timeout": "1min", "lock_timeout": "10s"}
# Together fewer connections than PostgreSQL's default of 100, less 3 for superusers.
LIMITS: Final[Mapping[str, Limits]] = {
    # Two processes with 18 connections each, and as many of the old ones during a reload.
    WEB: Limits(72, {"statement_timeout": "1min", **_OF_PROCESSES}),
    CONSUMER: Limits(18, {"statement_timeout": "5min", **_OF_PROCESSES}),
    # An index or the archive of a day may take hours: only what nobody waits for any more is ended.
    OWNER: Limits(7, {"statement_timeout": "24h", "idle_in_transaction_session_timeout": "1h"}),
}

# Logins with limits: members of the roles, and the tables' owner. None counts for a superuser.
_LOGINS = """
WITH owner AS (SELECT relowner AS oid FROM pg_class WHERE oid = to_regclass('auth_user'))
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
    for login, role, connections, configured in _login_rules():
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
    most: dict[str, int] = {}
    for login, role, limit, _ in _login_rules():
        allowed = limit if limit >= 0 else LIMITS[role].connections
        most[login] = max(most.get(login, 0), allowed)
    return sum(most.values())


def roles() -> set[str]:
    """Those of WEB, CONSUMER and OWNER that a login has the rights of. The owner of the tables
    counts as OWNER only, and no superuser counts."""
    return {role for _, role, _, _ in _login_rules()}


def other_roles(role: str, login: str) -> list[str]:
    """Whose rights a login has already, apart from those of this role: WEB, CONSUMER, OWNER."""
    with connection.cursor() as cursor:
        cursor.execute(_RIGHTS, [OWNER, [WEB, CONSUMER], login])
        return [name for (name,) in cursor.fetchall() if name != role]


def make(role: str, login: str, password: str) -> Iterator[sql.Composed]:
    """SQL that creates a login of a role, or gives it this password. Needs CREATEROLE."""
    connection.ensure_connection()
    stored = connection.connection.pgconn.encrypt_password(
        password.encode(), login.encode(), b"scram-sha-256"
    )
    name = sql.Identifier(login)
    yield _create(login, "LOGIN")
    yield sql.SQL("ALTER ROLE {} LOGIN PASSWORD {}").format(name, sql.Literal(stored.decode()))
    yield sql.SQL("GRANT {} TO {}").format(sql.Identifier(role), name)


def _login_rules() -> list[tuple[str, str, int, list[str]]]:
    with connection.cursor() as cursor:
        cursor.execute(_LOGINS, [OWNER, [WEB, CONSUMER]])
        found: list[tuple[str, str, int, list[str]]] = cursor.fetchall()
    return found
