"""Whether the tables are those of this release: which migrations the database lacks. Those of the
next release are no obstacle: each leaves tables with which the release before works."""

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any, Final, LiteralString, Protocol

import psycopg
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from psycopg import errors

from history.base.error_text import causes
from history.entities import ENTITIES

Name = tuple[str, str]
"""App and name of a migration."""

APPLIED: Final[LiteralString] = "SELECT app, name FROM django_migrations"
# PostgreSQL's errors where the tables are not those of this release.
_OTHER_TABLES: Final = (errors.UndefinedTable, errors.UndefinedColumn)


@cache
def known() -> Mapping[Name, frozenset[Name]]:
    """The migrations of this release, each with those of earlier releases that it replaces."""
    found = MigrationLoader(None, ignore_no_migrations=True).disk_migrations
    return {name: frozenset(migration.replaces) for name, migration in found.items()}


def missing(applied: Collection[Name]) -> list[Name]:
    """The migrations of this release that the database lacks."""
    there = set(applied)
    return sorted(
        name
        for name, replaced in known().items()
        if name not in there and not (replaced and replaced <= there)
    )


def complaint(applied: Collection[Name]) -> str | None:
    """Why this release cannot work with these migrations, and what to do. None: it can."""
    if lacking := missing(applied):
        return (
            f"The database lacks migrations of this release ({names(lacking)}). Run `annals "
            "migrate` and `annals grants --apply` as the owner of the tables, then start this "
            "process again."
        )
    return None


class Cursor(Protocol):
    """psycopg's, or Django's."""

    def execute(self, statement: LiteralString, values: Any = ..., /) -> object: ...
    def fetchall(self) -> Sequence[tuple[Any, ...]]: ...


_KINDS: Final[LiteralString] = """
SELECT name, to_regclass(name) IS NOT NULL, EXISTS (SELECT FROM pg_attribute
    WHERE attrelid = to_regclass(name) AND attname = 'product_instance_id' AND NOT attisdropped)
FROM unnest(%s::text[]) AS given(name)
"""


def complaint_of_kinds(cursor: Cursor) -> str | None:
    """Why the tables are not those of the declared kinds: what to do, in sentences. None: they are.
    Raises the errors of the database."""
    cursor.execute(_KINDS, [[entity.table for entity in ENTITIES]])
    found = {name: (there, with_parent) for name, there, with_parent in cursor.fetchall()}
    for entity in ENTITIES:
        there, with_parent = found[entity.table]
        if not there:
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


def behind(error: BaseException) -> str | None:
    """What to do if an error is of another release's tables; else None. A query."""
    if not any(isinstance(each, _OTHER_TABLES) for each in causes(error)):
        return None
    return of_database()


def of_database() -> str | None:
    """What to do if the tables of the database are not those of this release, or it has none; None
    if they are. Asks the database."""
    try:
        with psycopg.connect(**connection.get_connection_params()) as own:
            return of_tables(own.cursor())
    except psycopg.Error:
        return None


def of_tables(cursor: Cursor) -> str | None:
    """The same. Raises the errors of the database."""
    return complaint(applied(cursor)) or complaint_of_kinds(cursor)


def applied(cursor: Cursor) -> list[Name]:
    """The migrations that a database has; none where it is new. Raises its errors."""
    cursor.execute("SELECT to_regclass('django_migrations') IS NOT NULL")
    if list(cursor.fetchall()) != [(True,)]:
        return []
    cursor.execute(APPLIED)
    return [(str(app), str(name)) for app, name in cursor.fetchall()]


def names(migrations: Collection[Name], most: int = 3) -> str:
    """The first of them, for a sentence."""
    listed = [f"{app}.{name}" for app, name in migrations]
    more = len(listed) - most
    return ", ".join(listed[:most]) + (f" and {more} more" if more > 0 else "")
