"""Checks that the tables are those of this release: the database must have all its migrations.

Migrations of the next release are allowed: each leaves tables with which the release before works.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any, Final, LiteralString, Protocol

import psycopg
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from psycopg import errors

from history.common.error_text import iterate_causes
from history.kinds.entities import ENTITIES

MigrationName = tuple[str, str]
"""App and name of a migration."""

APPLIED: Final[LiteralString] = "SELECT app, name FROM django_migrations"
# PostgreSQL's errors where the tables are not those of this release.
_OTHER_TABLES: Final = (errors.UndefinedTable, errors.UndefinedColumn)


@cache
def load_known_migrations() -> Mapping[MigrationName, frozenset[MigrationName]]:
    """Return the migrations of this release, each with the earlier ones that it replaces."""
    migrations = MigrationLoader(None, ignore_no_migrations=True).disk_migrations
    return {name: frozenset(migration.replaces) for name, migration in migrations.items()}


def find_missing_migrations(applied: Collection[MigrationName]) -> list[MigrationName]:
    """Return the migrations of this release that the database lacks."""
    applied_names = set(applied)
    return sorted(
        name
        for name, replaced in load_known_migrations().items()
        if name not in applied_names and not (replaced and replaced <= applied_names)
    )


def explain_missing_migrations(applied: Collection[MigrationName]) -> str | None:
    """Explain why this release cannot work with these migrations and what to do; None if it can."""
    if missing_migrations := find_missing_migrations(applied):
        return (
            "The database lacks migrations of this release "
            f"({format_names(missing_migrations)}). Run `annals "
            "migrate` and `annals grants --apply` as the owner of the tables, then start this "
            "process again."
        )
    return None


class SchemaCursor(Protocol):
    """A cursor of psycopg or of Django."""

    def execute(self, statement: LiteralString, values: Any = ..., /) -> object: ...
    def fetchall(self) -> Sequence[tuple[Any, ...]]: ...


_KINDS: Final[LiteralString] = """
SELECT name, to_regclass(name) IS NOT NULL, EXISTS (SELECT FROM pg_attribute
    WHERE attrelid = to_regclass(name) AND attname = 'product_instance_id' AND NOT attisdropped)
FROM unnest(%s::text[]) AS given(name)
"""


def explain_kind_tables(cursor: SchemaCursor) -> str | None:
    """Explain how the tables differ from the declared kinds and what to do; None if they do not.

    Raises the errors of the database.
    """
    cursor.execute(_KINDS, [[entity.table for entity in ENTITIES]])
    tables = {name: (exists, with_parent) for name, exists, with_parent in cursor.fetchall()}
    for entity in ENTITIES:
        exists, with_parent = tables[entity.table]
        if not exists:
            return (
                f"The kind {entity.name} has no table yet ({entity.table}). Run `annals migrate`"
                " and `annals grants --apply` as the owner of the tables, then start this "
                "process again."
            )
        if with_parent is (entity.parent is None):
            has, declared = ("a", "none") if with_parent else ("no", "one")
            return (
                f"The table {entity.table} has {has} column for the parent, and the kind "
                f"{entity.name} declares {declared}. A kind keeps what it had when its table was "
                "made: declare it so again, or under another name. See docs/kinds.md."
            )
    return None


def explain_older_tables(error: BaseException) -> str | None:
    """Explain what to do if tables of another release caused the error; else None. Runs a query."""
    if not any(isinstance(cause, _OTHER_TABLES) for cause in iterate_causes(error)):
        return None
    return explain_database()


def explain_database() -> str | None:
    """Explain what to do if the database lacks the tables, or has tables of another release.

    Asks the database. Returns None if the tables are right.
    """
    try:
        with psycopg.connect(**connection.get_connection_params()) as own_connection:
            return explain_tables(own_connection.cursor())
    except psycopg.Error:
        return None


def explain_tables(cursor: SchemaCursor) -> str | None:
    """Explain what to do if the tables are not the tables of this release, or return None."""
    return explain_missing_migrations(load_applied_migrations(cursor)) or explain_kind_tables(
        cursor
    )


def load_applied_migrations(cursor: SchemaCursor) -> list[MigrationName]:
    """Return the migrations that the database has, or none if it is new. Raises its errors."""
    cursor.execute("SELECT to_regclass('django_migrations') IS NOT NULL")
    if list(cursor.fetchall()) != [(True,)]:
        return []
    cursor.execute(APPLIED)
    return [(str(app), str(name)) for app, name in cursor.fetchall()]


def format_names(migrations: Collection[MigrationName], limit: int = 3) -> str:
    """Format the first migrations for a sentence."""
    listed = [f"{app}.{name}" for app, name in migrations]
    more = len(listed) - limit
    return ", ".join(listed[:limit]) + (f" and {more} more" if more > 0 else "")
