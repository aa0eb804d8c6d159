"""The web cannot change the history, and the consumer can only add to it."""

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta
from io import StringIO

import psycopg
import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connection
from msgspec.structs import replace
from psycopg import errors, sql

from annals.access.grants import CONSUMER, WEB
from annals.access.local_logins import create_break_glass_login, disable_break_glass_login
from history.common import clock
from history.common.error_sentences import explain_error
from history.kinds.entities import ENTITIES, ROOT
from history.retention.seals.seal import seal_day
from ingest.messages.explanations import Code, Explanation
from ingest.store import ledger
from ingest.store.ledger import Connection
from ingest.store.session import open_connection
from ingest.store.transaction import BatchWriter
from tests.db.as_role import act_as, as_consumer, build_url, create_member, is_refused, log_in_as
from tests.db.ingested import Ingested, list_quarantined, retry_quarantined
from tests.messages import NOW, SOURCE, make_fields, make_value
from tests.old_service import OldServiceServer

pytestmark = pytest.mark.django_db(transaction=True)

VERSIONS = [entity.table for entity in ENTITIES]
CHANGES = ("UPDATE {} SET version = 0", "DELETE FROM {}", "TRUNCATE {}", "DROP TABLE {}")


@pytest.fixture(autouse=True)
def granted() -> None:
    call_command("grants", apply=True)


# One test for each role and not for each statement: emptying the database after a test is slow.
@pytest.mark.parametrize("role", [WEB, CONSUMER])
def test_roles_cannot_change_history(role: str) -> None:
    tried = [change.format(table) for table in VERSIONS for change in CHANGES]
    with act_as(role) as plain:
        assert [item for item in tried if not is_refused(plain, item)] == []


@pytest.mark.plain_only(
    "Citus would log in to its nodes as the role of SET ROLE, which is not a login"
)
def test_web_role_can_read_tables_of_history_and_cannot_insert_into_them() -> None:
    with act_as(WEB) as plain:
        for table in (*VERSIONS, "ingest_ledger", "search_key", "day_seal", "auth_group"):
            plain.execute(f"SELECT * FROM {table} LIMIT 1")
            assert is_refused(plain, f"INSERT INTO {table} DEFAULT VALUES")


def test_web_role_keeps_rights_that_previous_release_needs() -> None:
    """Processes of the previous release work until they are replaced."""
    with act_as(WEB) as plain:
        plain.execute("INSERT INTO access_opened (caller, application) VALUES ('c', 'a')")
        plain.execute("SELECT application, at FROM access_opened")
        plain.execute("SELECT client_id FROM day_share")
        plain.execute("INSERT INTO access_attempts (key, failures, last) VALUES ('k', 1, now())")
        plain.execute("UPDATE access_attempts SET failures = failures - 1")
        plain.execute("DELETE FROM access_attempts")


# The statements that PostgreSQL refuses to each role.
REFUSED = {
    WEB: (
        *(f"SELECT {column} FROM ingest_quarantine" for column in ("key", "value", "headers", "*")),
        "SELECT count(*) FROM ingest_quarantine WHERE value = 'x'",
        "COPY ingest_quarantine TO STDOUT",
        *(
            f"UPDATE {table} SET {column} = {column}"
            for table, column in (
                ("ingest_quarantine", "status"),
                ("ingest_ledger", "stored"),
                ("auth_user", "is_superuser"),
                ("auth_user", "password"),
                ("auth_group", "name"),
                ("auth_permission", "codename"),
                ("access_breakglass", "made"),
                ("access_identity", "subject"),
                ("access_identity", "user_id"),
                ("access_journal", "login"),
                ("django_admin_log", "user_id"),
                ("django_migrations", "name"),
                ("day_seal", "seal"),
                ("ingest_quarantine_request", "done_at"),
                ("feed_horizon", "id"),
                ("late_list", "last_position"),
                ("late_batch", "ids"),
            )
        ),
        *(
            f"{change} {table}"
            for change in ("DELETE FROM", "TRUNCATE")
            for table in (
                "ingest_ledger",
                "ingest_quarantine",
                "search_key",
                "day_seal",
                "archived_day",
                "auth_user",
                "auth_group",
                "access_identity",
                "access_breakglass",
                "access_journal",
                "django_admin_log",
                "ingest_quarantine_request",
                "feed_horizon",
                "late_list",
                "late_batch",
            )
        ),
        "INSERT INTO access_journal (at) VALUES (now())",
        "INSERT INTO access_breakglass (user_id, made) SELECT id, now() FROM auth_user",
        "INSERT INTO auth_group_permissions (group_id, permission_id) VALUES (1, 1)",
        "DROP POLICY annals_add ON auth_user",
        "ALTER TABLE auth_user DISABLE ROW LEVEL SECURITY",
        "SET SESSION AUTHORIZATION annals_consumer",
        "CREATE TEMPORARY TABLE history_fieldlabel (path text)",
    ),
    CONSUMER: (
        *(
            f"SELECT * FROM {table}"
            for table in (
                "auth_user",
                "django_session",
                "history_person",
                "access_journal",
                "django_admin_log",
                "access_identity",
            )
        ),
        *(
            f"UPDATE {table} SET {column} = {column}"
            for table, column in (
                ("ingest_ledger", "first_offset"),
                ("ingest_ledger", "lost_acknowledged"),
                ("ingest_ledger", "topic"),
                ("ingest_quarantine", '"offset"'),
                ("ingest_gap", "lost"),
                ("late_row", "row_hash"),
                ("version_gap", "last"),
                ("search_key", "value"),
                ("feed_horizon", "given_to"),
                ("late_list", "removed_to"),
                ("late_batch", "ids"),
            )
        ),
        *(
            f"{change} {table}"
            for change in ("DELETE FROM", "TRUNCATE")
            for table in (
                "ingest_ledger",
                "ingest_quarantine",
                "ingest_gap",
                "search_key",
                "late_row",
                "version_gap",
                "gap_document",
                "gap_day",
                "feed_horizon",
                "late_list",
                "late_batch",
            )
        ),
        "INSERT INTO feed_horizon DEFAULT VALUES",
        "INSERT INTO access_journal DEFAULT VALUES",
        "INSERT INTO ingest_retired_topic VALUES ('t', 'why', now())",
        "INSERT INTO sealed_day VALUES ('t', now(), NULL)",
    ),
}
BOTH = (
    "CREATE TABLE own (a integer)",
    "CREATE TABLE own PARTITION OF product_instance_aud FOR VALUES FROM ('1999-01-01') TO"
    " ('1999-01-02')",
    "CREATE FUNCTION own() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
    "CREATE SCHEMA own",
    "CREATE ROLE own",
    "ALTER TABLE product_instance_aud ADD COLUMN own integer",
    "ALTER TABLE product_instance_aud DISABLE TRIGGER ALL",
    "CREATE TRIGGER own BEFORE INSERT ON product_instance_aud EXECUTE FUNCTION now()",
    "CREATE INDEX own ON product_instance_aud (id)",
    "SET log_min_messages = 'debug1'",
    "SET session_replication_role = 'replica'",
    "SELECT pg_read_file('postgresql.conf')",
    "COPY (SELECT 1) TO PROGRAM 'true'",
    "SELECT pg_reload_conf()",
    "ALTER SYSTEM SET log_statement = 'all'",
)


@pytest.mark.plain_only(
    "Citus would log in to its nodes as the role of SET ROLE, which is not a login"
)
@pytest.mark.parametrize("role", [WEB, CONSUMER])
def test_postgresql_refuses_statements_that_a_role_does_not_need(role: str) -> None:
    with create_member(role) as login, psycopg.connect(build_url(login), autocommit=True) as plain:
        tried = (*REFUSED[role], *BOTH)
        assert [item for item in tried if not is_refused(plain, item)] == []


def test_only_owner_can_create_objects_in_schema() -> None:
    """In databases that were created before PostgreSQL 15, every role could create objects. A
    function of the web's login could then replace one of PostgreSQL's functions, and run with the
    rights of the owner."""
    function = "CREATE FUNCTION public.lower(varchar) RETURNS text LANGUAGE sql AS $$ SELECT 'x' $$"
    with open_connection("test-owner") as owner:
        owner.execute("GRANT CREATE ON SCHEMA public TO PUBLIC")
        call_command("grants", apply=True)
        for role in (WEB, CONSUMER):
            with act_as(role) as plain:
                assert is_refused(plain, function)
                assert is_refused(plain, "CREATE TABLE public.more (n int)")
        actual = owner.execute(
            "SELECT has_schema_privilege(relowner, 'public', 'CREATE') FROM pg_class"
            " WHERE oid = 'auth_user'::regclass"
        ).fetchone()
        assert actual == (True,)


def test_web_cannot_create_superuser_or_password() -> None:
    columns = (
        "username, password, is_superuser, is_staff, is_active, first_name, last_name, email,"
        " date_joined"
    )
    added = f"INSERT INTO auth_user ({columns}) VALUES (%s, %s, %s, true, true, '', '', '', now())"
    with create_member(WEB) as login, psycopg.connect(build_url(login), autocommit=True) as plain:
        for values in (("root", "!", True), ("local", "pbkdf2_sha256$1$a$b", False)):
            with pytest.raises(errors.InsufficientPrivilege, match="row-level security"):
                plain.execute(added, values)
        plain.execute(added, ("of-a-provider", "!x", False))
        row = "WITH own AS (SELECT 1) UPDATE auth_user SET is_staff = false WHERE username = %s"
        assert plain.execute(row, ("of-a-provider",)).rowcount == 1


def test_web_can_change_no_column_of_a_superuser_except_last_login() -> None:
    """An attacker who controls the web cannot disable a break-glass login."""
    user = create_break_glass_login("breakglass", NOW)
    changes = (
        "is_active = false",
        "is_staff = false",
        "username = username || '-'",
        "first_name = 'other', last_login = now()",
    )
    with create_member(WEB) as login, psycopg.connect(build_url(login), autocommit=True) as plain:
        for change in changes:
            assert is_refused(plain, f"UPDATE auth_user SET {change} WHERE is_superuser"), change
            assert is_refused(plain, f"UPDATE auth_user SET {change}"), change
        logged = plain.execute("UPDATE auth_user SET last_login = now() WHERE is_superuser")
        assert logged.rowcount == 1
        further = plain.execute("UPDATE auth_user SET is_active = false WHERE NOT is_superuser")
        assert further.rowcount > 0
    user.refresh_from_db()
    assert (user.username, user.is_active, user.is_staff) == ("breakglass", True, True)
    assert user.last_login is not None
    disable_break_glass_login(user)  # as the owner
    user.refresh_from_db()
    assert (user.is_superuser, user.is_active) == (False, False)


@pytest.mark.plain_only(
    "Citus would log in to its nodes as the role of SET ROLE, which is not a login"
)
def test_consumer_role_has_all_rights_it_needs(ingested: Ingested) -> None:
    # The days exist, as after maintain: a role that may only insert cannot create days.
    old = NOW.replace(tzinfo=None) - timedelta(days=20)
    ingested.write(make_value(id="before"), make_value(id="old", updatedAt=old.isoformat()))
    with open_connection("test-owner") as owner:
        seal_day(owner, ROOT, old.date())

    # As if a page of the feed had passed all moments before yesterday.
    with act_as(WEB) as plain:
        plain.execute("UPDATE feed_horizon SET given_to = now() - interval '1 day'")
    ingested.writer.close()
    ingested.writer = BatchWriter(as_consumer)
    ingested.write(make_value(id="a", data={"realtyCrmId": "R-1"}), b"not json")
    ingested.write(make_value(id="a", data={"realtyCrmId": "R-1"}), make_value(id="b"))
    ingested.write(make_value(id="late", updatedAt=old.isoformat()))
    with act_as(CONSUMER) as plain:
        assert retry_quarantined(plain) == {"retrying": 1}
    ingested.writer.close()
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM product_instance_aud ORDER BY id")
        assert cursor.fetchall() == [("a",), ("b",), ("before",), ("late",), ("old",)]
        cursor.execute('SELECT row_id, "offset" FROM late_row')
        assert cursor.fetchall() == [("late", 6)]
        cursor.execute("SELECT ids FROM late_batch")
        assert cursor.fetchall() == [(["late"],)]
        cursor.execute("SELECT sum(stored), sum(repeated), sum(quarantined) FROM ingest_ledger")
        assert cursor.fetchone() == (5, 1, 1)


@contextmanager
def harden_database() -> Iterator[None]:
    """Revoke the right TEMPORARY from PUBLIC until the end of the block. PostgreSQL grants it by
    default."""
    name = sql.Identifier(connection.settings_dict["NAME"])
    with open_connection("test-owner") as owner:
        owner.execute(sql.SQL("REVOKE TEMPORARY ON DATABASE {} FROM PUBLIC").format(name))
        try:
            yield
        finally:
            owner.execute(sql.SQL("GRANT TEMPORARY ON DATABASE {} TO PUBLIC").format(name))


@pytest.mark.plain_only(
    "Citus would log in to its nodes as the role of SET ROLE, which is not a login"
)
def test_consumer_recognises_repeated_message_without_right_to_create_temporary_tables(
    ingested: Ingested,
) -> None:
    ingested.write(make_value(id="a"))
    with harden_database(), act_as(CONSUMER) as plain:
        ingested.writer.close()
        ingested.writer = BatchWriter(lambda: plain)
        written = ingested.write(make_value(id="a"))
    assert sum(written.repeated.values()) == 1


def run_and_get_outcome(*words: str) -> int | str:
    """Run a command, and return its exit code, or the message of its error."""
    try:
        call_command(*words, stdout=StringIO(), stderr=StringIO())
    except SystemExit as end:
        return int(end.code or 0)
    except Exception as error:
        return explain_error(error)
    return 0


def test_consumer_login_can_run_its_commands(
    ingested: Ingested, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingested.write(make_value(id="a"), b"bad", b"worse")
    [first, second] = (str(pending["id"]) for pending in list_quarantined())
    with open_connection("test-owner") as owner:
        ledger.record_halts(owner, {ingested.claims[SOURCE]: Explanation(Code.HALTED_BEFORE)})
    commands = (
        ("ledger", "--offline"),
        ("ledger", "--offline", "--json"),
        ("quarantine", "list"),
        ("quarantine", "list", "--ids"),
        ("quarantine", "show", first),
        ("quarantine", "retry", "--now"),
        ("quarantine", "retry", first),
        ("quarantine", "discard", second, "--why", "agreed"),
        ("quarantine", "resume", SOURCE.topic),
    )
    with log_in_as(CONSUMER, monkeypatch):
        assert {words: run_and_get_outcome(*words) for words in commands} == dict.fromkeys(
            commands, 0
        )


def test_command_without_rights_names_login_that_may_run_it(
    ingested: Ingested, monkeypatch: pytest.MonkeyPatch
) -> None:
    with log_in_as(CONSUMER, monkeypatch):
        text = run_and_get_outcome("ledger", "retire", SOURCE.topic, "--why", "finished")
    assert isinstance(text, str)
    assert text.startswith("the login ")
    text = re.sub(r"_\d+\)", ")", text)  # without the shard number that a cluster adds
    assert text.endswith(
        " may not do that (InsufficientPrivilege: SQLSTATE 42501: permission denied for table "
        "ingest_retired_topic). docs/operations.md says which login runs which command"
    )


def test_database_login_of_web_can_run_command_compare_old(
    ingested: Ingested, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingested.write(make_value(id="a"))
    sent = make_fields(id="a")
    moment = datetime.fromisoformat(sent["updatedAt"])
    more = {"type": sent["type"], "author": sent["author"], "client": sent["clientId"]}
    with OldServiceServer() as service:
        service.add_version("a", sent["version"], sent["data"], moment, **more)
        values = {"fallback_url": service.url, "fallback_until": clock.now().date()}
        monkeypatch.setattr(settings, "ANNALS", replace(settings.ANNALS, **values))
        with log_in_as(WEB, monkeypatch):
            assert run_and_get_outcome("compare-old") == 0
    assert [item.partition("?")[0] for item in service.requests] == [
        "/api/v1/applications/a/history"
    ]


def test_grants_are_applied_while_another_transaction_changes_a_table() -> None:
    """PostgreSQL reports `tuple concurrently updated` in such a case, for example while `partitions
    maintain` runs."""
    with open_connection("test-other") as other_session, ThreadPoolExecutor(1) as pool:
        with other_session.transaction():
            other_session.execute("GRANT SELECT ON search_key TO annals_web")
            applied = pool.submit(apply_in_thread)
            wait_for_lock(other_session)
        applied.result(timeout=120)


def apply_in_thread() -> None:
    try:
        call_command("grants", apply=True, stdout=StringIO())
    finally:
        connection.close()


def wait_for_lock(session: Connection) -> None:
    """Wait until another session waits for a lock of this session."""
    while (
        session.execute(
            "SELECT FROM pg_locks WHERE NOT granted"
            " AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
        ).fetchone()
        is None
    ):
        time.sleep(0.02)
