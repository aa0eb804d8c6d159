"""The database rights of the web server and the consumer, and the limits of login roles.

The rights belong to two group roles that cannot log in. The login role of a process is a member
of one group role.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, LiteralString

from django.apps import apps
from django.db import connection
from django.db.models import Model
from psycopg import sql

from annals.access.models import JournalEntry, LogoutToken
from history.models import VERSION_MODELS
from history.store.database import privileges
from ingest.models import Quarantined
from ingest.store import rights

WEB: Final = "annals_web"
CONSUMER: Final = "annals_consumer"

# The rights of the web server besides reading, by table. The web server cannot change roles
# (auth_group) and break-glass logins, and can add entries to the admin's log but not change them.
WEB_WRITES: Final[Mapping[str, str]] = {
    "history_person": "INSERT, UPDATE (full_name, kind, written_by), DELETE",
    "history_fieldlabel": "INSERT, DELETE,"
    " UPDATE (entity, path, russian, english, kind, words, sensitive)",
    # Without password and is_superuser: see _generate_login_policies.
    "auth_user": "INSERT,"
    " UPDATE (username, first_name, last_name, is_staff, is_active, last_login)",
    "auth_user_groups": "INSERT, DELETE",
    "auth_user_user_permissions": "DELETE",
    "django_admin_log": "INSERT",
    # Each page of the feed of changes notes up to which moment it goes.
    "feed_horizon": "UPDATE (given_to)",
    # The web stores a request to resume; the consumer carries it out.
    "ingest_quarantine_request": "INSERT",
    "django_session": "INSERT, UPDATE (session_data, expire_date), DELETE",
    "access_identity": "INSERT, UPDATE (login)",
    "access_providersession": "INSERT, UPDATE (identity_id, provider_session, began), DELETE",
    # Only a web of release 0.1.0 uses these tables. Remove these rights together with the tables.
    "access_attempts": "SELECT, INSERT, UPDATE (failures, last), DELETE",
    "access_opened": "SELECT, INSERT (caller, application)",
    "day_share": "SELECT",
}
# The web can only add rows to these tables. It cannot change or remove a row, and the
# database sets the time of each row.
WEB_INSERTS: Final = (JournalEntry, LogoutToken)
# The web may read these tables, but not the columns that are named here.
HIDDEN_FROM_WEB: Final[tuple[tuple[type[Model], frozenset[str]], ...]] = (
    (Quarantined, frozenset({"key", "value", "headers"})),
)
# A trigger function runs with the rights of the login that updates the row.
_CREATE_REFUSE_FUNCTION: Final[LiteralString] = """
CREATE OR REPLACE FUNCTION annals_refuse_but_to_owner() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog AS $$ BEGIN
    IF pg_has_role((SELECT relowner FROM pg_class WHERE oid = TG_RELID), 'USAGE') THEN
        RETURN NEW;
    END IF;
    RAISE insufficient_privilege
        USING MESSAGE = 'permission denied: only the owner of the tables changes a superuser';
END $$
"""
_CREATE_SUPERUSER_TRIGGER: Final[LiteralString] = """
CREATE OR REPLACE TRIGGER annals_superusers_stay BEFORE UPDATE ON {table} FOR EACH ROW
WHEN (OLD.is_superuser AND to_jsonb(OLD) - 'last_login' <> to_jsonb(NEW) - 'last_login')
EXECUTE FUNCTION annals_refuse_but_to_owner()
"""


def generate_grants() -> Iterator[sql.Composed]:
    """Generate SQL that creates the roles WEB and CONSUMER and gives them exactly their rights.

    The SQL first revokes all rights that the roles have on tables.

    The owner of the tables runs the SQL after each migration. The first run needs CREATEROLE.
    """
    for role in (WEB, CONSUMER):
        yield _create_role(role, "NOLOGIN")
        yield sql.SQL("REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {}").format(
            sql.Identifier(role)
        )
        yield sql.SQL("GRANT USAGE ON SCHEMA public TO {}").format(sql.Identifier(role))
    yield from _generate_table_grants(list_web_rights(), WEB)
    yield from _generate_login_policies()
    yield from _generate_table_grants(rights.list_consumer_rights(), CONSUMER)
    # The consumer compares repeated versions in a temporary table. No other login needs one.
    database = sql.Identifier(connection.settings_dict["NAME"])
    yield sql.SQL("GRANT TEMPORARY ON DATABASE {} TO {}").format(database, sql.Identifier(CONSUMER))
    yield sql.SQL("REVOKE TEMPORARY ON DATABASE {} FROM PUBLIC").format(database)


def _generate_table_grants(
    table_rights: Iterable[privileges.Right], role: str
) -> Iterator[sql.Composed]:
    """Generate one GRANT statement for each table."""
    tables: dict[str, dict[str, list[str]]] = {}
    for table, right, column in table_rights:
        tables.setdefault(table, {}).setdefault(right, []).append(column)
    for table, columns_by_right in sorted(tables.items()):
        listed = ", ".join(
            right if "" in columns else '{} ("{}")'.format(right, '", "'.join(columns))
            for right, columns in columns_by_right.items()
        )
        yield sql.SQL("GRANT {} ON {} TO {}").format(
            sql.SQL(listed), sql.Identifier(table), sql.Identifier(role)
        )


def list_web_rights() -> Iterator[privileges.Right]:
    """Generate the rights on tables and columns that the database role of web processes needs."""
    partly_hidden = {model._meta.db_table for model, _ in HIDDEN_FROM_WEB}
    yield from ((table, "SELECT", "") for table in _list_tables() - partly_hidden)
    for model, hidden in HIDDEN_FROM_WEB:
        table = model._meta.db_table
        yield from (
            (table, "SELECT", column) for column in _find_columns(model) if column not in hidden
        )
    for table, table_rights in WEB_WRITES.items():
        yield from privileges.iterate_rights(table, table_rights)
    for model in WEB_INSERTS:
        columns = _find_columns(model).items()
        yield from (
            (model._meta.db_table, "INSERT", column) for column, filled in columns if not filled
        )


def _generate_login_policies() -> Iterator[sql.Composed]:
    """Generate policies that keep web processes from making superusers and logins with a password.

    Rights on columns cannot do that: the right to insert has to include every column that Django
    names. So a policy checks the values.
    """
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
        policy_name = sql.Identifier(name)
        yield sql.SQL("DROP POLICY IF EXISTS {} ON {}").format(policy_name, table)
        created = sql.SQL("CREATE POLICY {} ON {} ").format(policy_name, table)
        yield created + policy.format(sql.Identifier(WEB))
    yield sql.SQL(_CREATE_REFUSE_FUNCTION).format()
    yield sql.SQL(_CREATE_SUPERUSER_TRIGGER).format(table=table)


def _list_tables() -> set[str]:
    managed = (model for model in apps.get_models(include_auto_created=True) if model._meta.managed)
    versions = {model._meta.db_table for model in VERSION_MODELS.values()}
    return {model._meta.db_table for model in managed} | versions | {"django_migrations"}


def _find_columns(model: type[Model]) -> dict[str, bool]:
    """Return for each column of a table whether the database itself fills it."""
    fields: Iterable[Any] = model._meta.local_concrete_fields
    return {field.column: field.has_db_default() for field in fields if field.column}


def _create_role(role: str, option: LiteralString) -> sql.Composed:
    return sql.SQL(
        "DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = {text}) THEN"
        " CREATE ROLE {role} {option}; END IF; END $$"
    ).format(text=sql.Literal(role), role=sql.Identifier(role), option=sql.SQL(option))


# Selects the owner of the tables if every login may create objects in the schema, as in
# clusters that were created before PostgreSQL 15.
_SELECT_OWNER_OF_OPEN_SCHEMA = """
SELECT pg_get_userbyid(t.relowner) FROM pg_class t, pg_namespace n, aclexplode(n.nspacl) a
WHERE t.oid = to_regclass('public.auth_user') AND n.nspname = 'public'
    AND a.grantee = 0 AND a.privilege_type = 'CREATE'
"""


def generate_schema_revokes() -> list[sql.Composed]:
    """Return SQL that lets only the owner of the tables create objects in the schema.

    Returns an empty list if this is already so.
    """
    with connection.cursor() as cursor:
        cursor.execute(_SELECT_OWNER_OF_OPEN_SCHEMA)
        row = cursor.fetchone()
    if row is None:
        return []
    return [
        sql.SQL("GRANT CREATE ON SCHEMA public TO {}").format(sql.Identifier(row[0])),
        sql.SQL("REVOKE CREATE ON SCHEMA public FROM PUBLIC").format(),
    ]


def find_missing_rights() -> list[str]:
    """Return the rights that a web process needs, but the database login of this process lacks.

    An entry is for example "INSERT on access_journal.login". The function runs one query.

    Raises:
        django.db.Error: The database fails.
    """
    statement, values = privileges.build_missing_query(list_web_rights())
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return [text for (text,) in cursor.fetchall()]


OWNER: Final = "owner"


@dataclass(frozen=True, slots=True)
class LoginLimits:
    """The limits of one database login."""

    connections: int
    settings: Mapping[str, str]  # settings of PostgreSQL for the sessions of the login


_PROCESS_SETTINGS: Final = {"idle_in_transaction_session_timeout": "1min", "lock_timeout": "10s"}
# Together 97 connections: PostgreSQL's default of 100, without the 3 that it keeps for superusers.
LIMITS: Final[Mapping[str, LoginLimits]] = {
    # Two processes with 18 connections each. During a reload, old and new processes run together.
    WEB: LoginLimits(72, {"statement_timeout": "1min", **_PROCESS_SETTINGS}),
    CONSUMER: LoginLimits(18, {"statement_timeout": "5min", **_PROCESS_SETTINGS}),
    # Building an index or archiving a day may take hours. The limit ends abandoned statements.
    OWNER: LoginLimits(
        7, {"statement_timeout": "24h", "idle_in_transaction_session_timeout": "1h"}
    ),
}

# Logins with limits: members of the roles and the owner of the tables, without superusers.
_SELECT_LOGINS = """
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

_SELECT_ROLES_OF_LOGIN = """
SELECT g.name FROM pg_roles r, (
    SELECT %s AS name, relowner AS oid FROM pg_class WHERE oid = 'auth_user'::regclass
    UNION ALL SELECT rolname, oid FROM pg_roles WHERE rolname = ANY(%s)
) g
WHERE r.rolname = %s AND pg_has_role(r.oid, g.oid, 'MEMBER')
ORDER BY 1
"""


def generate_limits() -> Iterator[sql.Composed]:
    """Generate SQL that gives each login of Annals the limits of its role.

    It does not change a limit that a login already has.
    """
    for login, role, connections, configured in _fetch_logins():
        name = sql.Identifier(login)
        login_limits = LIMITS[role]
        configured_names = {text.partition("=")[0] for text in configured}
        for setting, value in login_limits.settings.items():
            if setting not in configured_names:
                yield sql.SQL("ALTER ROLE {} SET {} = {}").format(
                    name, sql.Identifier(setting), sql.Literal(value)
                )
        if connections < 0:
            yield sql.SQL("ALTER ROLE {} CONNECTION LIMIT {}").format(
                name, sql.Literal(login_limits.connections)
            )


def count_allowed_connections() -> int:
    """Return how many connections the login roles of Annals in PostgreSQL may open together.

    A login role without a limit counts with the limit that `annals grants` would set for it. The
    result is 0 before the first migration.
    """
    limits: dict[str, int] = {}
    for login, role, limit, _ in _fetch_logins():
        allowed = limit if limit >= 0 else LIMITS[role].connections
        limits[login] = max(limits.get(login, 0), allowed)
    return sum(limits.values())


def list_granted_roles() -> set[str]:
    """Return the roles for which a login exists: WEB, CONSUMER, OWNER or some of them.

    OWNER stands for the login that owns the tables, whatever its other roles. Superusers do not
    count.
    """
    return {role for _, role, _, _ in _fetch_logins()}


def list_other_roles(role: str, login: str) -> list[str]:
    """Return the roles among WEB, CONSUMER and OWNER that a login has, without `role`."""
    with connection.cursor() as cursor:
        cursor.execute(_SELECT_ROLES_OF_LOGIN, [OWNER, [WEB, CONSUMER], login])
        return [name for (name,) in cursor.fetchall() if name != role]


def generate_login(role: str, login: str, password: str) -> Iterator[sql.Composed]:
    """Generate SQL that creates a login of a role, or changes its password. Needs CREATEROLE."""
    connection.ensure_connection()
    stored = connection.connection.pgconn.encrypt_password(
        password.encode(), login.encode(), b"scram-sha-256"
    )
    name = sql.Identifier(login)
    yield _create_role(login, "LOGIN")
    yield sql.SQL("ALTER ROLE {} LOGIN PASSWORD {}").format(name, sql.Literal(stored.decode()))
    yield sql.SQL("GRANT {} TO {}").format(sql.Identifier(role), name)


def _fetch_logins() -> list[tuple[str, str, int, list[str]]]:
    with connection.cursor() as cursor:
        cursor.execute(_SELECT_LOGINS, [OWNER, [WEB, CONSUMER]])
        rows: list[tuple[str, str, int, list[str]]] = cursor.fetchall()
    return rows
