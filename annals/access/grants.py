"""Least privilege in the database: the rights of the web and of the consumer.

Two group roles without login; the logins of the processes become members of them. The owner of
the tables runs the migrations and maintains the partitions, and needs no grants.
"""

from __future__ import annotations

from collections.abc import Iterator

from django.apps import apps
from django.db import connection
from django.db.models import Model
from psycopg import sql

from annals.access.models import JournalEntry, LogoutToken, Opened
from history.models import VERSION_MODELS

WEB = "annals_web"
CONSUMER = "annals_consumer"

# Tables that people change in the admin, and those that Django writes at log-in. The web only
# reads the history.
WEB_WRITES = (
    "history_person",
    "history_fieldlabel",
    "auth_user",
    "auth_user_groups",
    "auth_user_user_permissions",
    "auth_group",
    "auth_group_permissions",
    "django_session",
    "django_admin_log",
    "access_identity",
    "access_providersession",
    "access_breakglass",
    "access_attempts",
)
# The web adds to the access journal, and to what the quota and logout count; nothing that it runs
# can change or remove a row, or give one another time than the database's.
WEB_INSERTS = (JournalEntry, Opened, LogoutToken)
CONSUMER_READS = ("sealed_day", "ingest_retired_topic")
CONSUMER_INSERTS = ("ingest_gap", "late_row")
CONSUMER_UPDATES = ("ingest_ledger", "ingest_quarantine", "search_key")


def statements() -> Iterator[sql.Composed]:
    """SQL that creates the roles and replaces their grants by those of this module. The owner of
    the tables runs it, again after each migration; the first time it needs CREATEROLE."""
    for role in (WEB, CONSUMER):
        yield _create(role)
        yield sql.SQL("REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {}").format(_name(role))
        yield sql.SQL("GRANT USAGE ON SCHEMA public TO {}").format(_name(role))
    versions = sorted(model._meta.db_table for model in VERSION_MODELS.values())
    yield _grant("SELECT", sorted(_tables()), WEB)
    yield _grant("INSERT, UPDATE, DELETE", WEB_WRITES, WEB)
    for model in WEB_INSERTS:
        yield _grant(f"INSERT ({', '.join(_given(model))})", (model._meta.db_table,), WEB)
    yield _grant("SELECT", CONSUMER_READS, CONSUMER)
    # The consumer reads the versions to recognise repeated messages.
    yield _grant("SELECT, INSERT", (*versions, *CONSUMER_INSERTS), CONSUMER)
    yield _grant("SELECT, INSERT, UPDATE", CONSUMER_UPDATES, CONSUMER)
    # Repeats are compared in a temporary table; many databases take this right from PUBLIC.
    yield sql.SQL("GRANT TEMPORARY ON DATABASE {} TO {}").format(
        sql.Identifier(connection.settings_dict["NAME"]), _name(CONSUMER)
    )


def _tables() -> set[str]:
    managed = (model for model in apps.get_models(include_auto_created=True) if model._meta.managed)
    return {model._meta.db_table for model in managed} | {"django_migrations"}


def _given(model: type[Model]) -> list[str]:
    """The columns that the database does not fill in itself."""
    fields = model._meta.local_concrete_fields
    return [str(each.column) for each in fields if not each.has_db_default()]


def _create(role: str) -> sql.Composed:
    return sql.SQL(
        "DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = {text}) THEN"
        " CREATE ROLE {role} NOLOGIN; END IF; END $$"
    ).format(text=sql.Literal(role), role=_name(role))


def _grant(rights: str, tables: tuple[str, ...] | list[str], role: str) -> sql.Composed:
    names = sql.SQL(", ").join(map(sql.Identifier, tables))
    return sql.SQL("GRANT {} ON {} TO {}").format(sql.SQL(rights), names, _name(role))


def _name(role: str) -> sql.Identifier:
    return sql.Identifier(role)
