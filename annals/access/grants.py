"""Least privilege in the database: what the web and the consumer may do, and nothing more.

Two group roles without login; the logins of the processes are made members of them. Whoever
migrates and maintains partitions owns the tables and needs no grants.
"""

from __future__ import annotations

from collections.abc import Iterator

from django.apps import apps
from psycopg import sql

from history.models import VERSION_MODELS

WEB = "annals_web"
CONSUMER = "annals_consumer"

# What people change in the admin, and what logging in leaves behind. History is only read.
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
)
CONSUMER_ADDS = ("ingest_gap",)
CONSUMER_MOVES = ("ingest_ledger", "ingest_quarantine", "search_key")


def statements() -> Iterator[sql.Composed]:
    """SQL that makes the roles and brings their grants to what stands here. Run by the tables'
    owner, again after each migration; needs CREATEROLE the first time."""
    for role in (WEB, CONSUMER):
        yield _make(role)
        yield sql.SQL("REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {}").format(_name(role))
        yield sql.SQL("GRANT USAGE ON SCHEMA public TO {}").format(_name(role))
    versions = sorted(model._meta.db_table for model in VERSION_MODELS.values())
    yield _grant("SELECT", sorted(_tables()), WEB)
    yield _grant("INSERT, UPDATE, DELETE", WEB_WRITES, WEB)
    # The consumer reads what it writes: that is how it tells repeats.
    yield _grant("SELECT, INSERT", (*versions, *CONSUMER_ADDS), CONSUMER)
    yield _grant("SELECT, INSERT, UPDATE", CONSUMER_MOVES, CONSUMER)


def _tables() -> set[str]:
    managed = (model for model in apps.get_models(include_auto_created=True) if model._meta.managed)
    return {model._meta.db_table for model in managed} | {"django_migrations"}


def _make(role: str) -> sql.Composed:
    return sql.SQL(
        "DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = {text}) THEN"
        " CREATE ROLE {role} NOLOGIN; END IF; END $$"
    ).format(text=sql.Literal(role), role=_name(role))


def _grant(rights: str, tables: tuple[str, ...] | list[str], role: str) -> sql.Composed:
    names = sql.SQL(", ").join(map(sql.Identifier, tables))
    return sql.SQL("GRANT {} ON {} TO {}").format(sql.SQL(rights), names, _name(role))


def _name(role: str) -> sql.Identifier:
    return sql.Identifier(role)
