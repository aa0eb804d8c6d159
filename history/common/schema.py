"""Checks that the database has the tables of this release, that is, all its migrations.

Further migrations, of the next release, are allowed: this release works with their tables too.
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
# The errors of PostgreSQL if tables are not as in this release.
_OTHER_TABLES: Final = (errors.UndefinedTable, errors.UndefinedColumn)


@cache
def load_known_migrations() -> Mapping[MigrationName, frozenset[MigrationName]]:
    """Return the migrations of this release, each with the earlier migrations that it replaces."""
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
    """Explain what to do if the database lacks migrations, or return None if it has all."""
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


# Returns for each table whether it exists, and whether it has the column for the parent.
_KIND_TABLES: Final[LiteralString] = """
SELECT name, to_regclass(name) IS NOT NULL, EXISTS (SELECT FROM pg_attribute
    WHERE attrelid = to_regclass(name) AND attname = 'product_instance_id' AND NOT attisdropped)
FROM unnest(%s::text[]) AS declared(name)
"""


def explain_kind_tables(cursor: SchemaCursor) -> str | None:
    """Explain what to do if the tables do not fit the declared kinds, or return None if they fit.

    Raises:
        django.db.Error, psycopg.Error: The database fails.
    """
    cursor.execute(_KIND_TABLES, [[entity.table for entity in ENTITIES]])
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
                f"The table {entity.table} has {has} column for the parent, but the kind "
                f"{entity.name} declares {declared}. This cannot change once the table exists: "
                "declare the kind as it was before, or under another name. See docs/kinds.md."
            )
    return None


def explain_older_tables(error: BaseException) -> str | None:
    """Explain what to do if tables of another release caused the error, or return None.

    Queries the database only if the error is about a missing table or column.
    """
    if not any(isinstance(cause, _OTHER_TABLES) for cause in iterate_causes(error)):
        return None
    return explain_database()


def explain_database() -> str | None:
    """Explain what to do if the database does not have the tables of this release, or return None.

    Opens a connection of its own. Returns None also if the database does not answer.
    """
    try:
        with psycopg.connect(**connection.get_connection_params()) as own_connection:
            return explain_tables(own_connection.cursor())
    except psycopg.Error:
        return None


def explain_tables(cursor: SchemaCursor) -> str | None:
    """Explain what to do if the database does not have the tables of this release, or return None.

    For code that has a cursor. `explain_database` does the same with a connection of its own.
    """
    return explain_missing_migrations(load_applied_migrations(cursor)) or explain_kind_tables(
        cursor
    )


def load_applied_migrations(cursor: SchemaCursor) -> list[MigrationName]:
    """Return the migrations that the database has; an empty list if the database is new.

    Raises:
        django.db.Error, psycopg.Error: The database fails.
    """
    cursor.execute("SELECT to_regclass('django_migrations') IS NOT NULL")
    if list(cursor.fetchall()) != [(True,)]:
        return []
    cursor.execute(APPLIED)
    return [(str(app), str(name)) for app, name in cursor.fetchall()]


def format_names(migrations: Collection[MigrationName], limit: int = 3) -> str:
    """Format migrations for a sentence: the first `limit`, and how many more there are."""
    listed = [f"{app}.{name}" for app, name in migrations]
    more = len(listed) - limit
    return ", ".join(listed[:limit]) + (f" and {more} more" if more > 0 else "")
