"""Whether the tables are those of this release: which migrations the database lacks, and which it
has from a newer release that this one cannot work with."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cache
from typing import Final, LiteralString

import psycopg
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from psycopg import errors

from history.error_text import causes

Name = tuple[str, str]
"""App and name of a migration."""

APPLIED: Final[LiteralString] = "SELECT app, name FROM django_migrations"
# The name says it, because an older release sees nothing else of a migration that it does not have.
NEEDS_STOP: Final = "_needs_stop"
# Made before there was such a name.
OLD_STOPS: Final[frozenset[Name]] = frozenset({("history", "0010_search_key_without_application")})
# PostgreSQL's errors where the tables are not those of this release.
_OTHER_TABLES: Final = (errors.UndefinedTable, errors.UndefinedColumn)


@cache
def known() -> frozenset[Name]:
    """The migrations of this release."""
    return frozenset(MigrationLoader(None, ignore_no_migrations=True).disk_migrations)


def stops(migrations: Iterable[Name]) -> list[Name]:
    """Those of these migrations that no process of an earlier release works after."""
    return sorted(each for each in migrations if each in OLD_STOPS or each[1].endswith(NEEDS_STOP))


def missing(applied: Collection[Name]) -> list[Name]:
    """The migrations of this release that the database lacks."""
    return sorted(known() - set(applied))


def complaint(applied: Collection[Name]) -> str | None:
    """Why this release cannot work with a database that has these migrations: what to do, in
    sentences. None: it can."""
    if lacking := missing(applied):
        return (
            f"The database lacks migrations of this release ({names(lacking)}). Run `manage.py "
            "migrate` and `manage.py grants --apply` as the owner of the tables, then start this "
            "process again."
        )
    if newer := stops(set(applied) - known()):
        return (
            "A newer release has changed the tables so that this one cannot work with them "
            f"({names(newer)}). Start the newer release."
        )
    return None


def behind(error: BaseException) -> str | None:
    """What to do if an error is one of tables that are not those of this release; None if it is
    none. Asks the database."""
    if not any(isinstance(each, _OTHER_TABLES) for each in causes(error)):
        return None
    try:
        with psycopg.connect(**connection.get_connection_params()) as own:
            applied = own.execute(APPLIED).fetchall()
    except psycopg.errors.UndefinedTable:
        applied = []
    except psycopg.Error:
        return None
    return complaint([(str(app), str(name)) for app, name in applied])


def names(migrations: Collection[Name], most: int = 3) -> str:
    """The first of them, for a sentence."""
    listed = [f"{app}.{name}" for app, name in migrations]
    more = len(listed) - most
    return ", ".join(listed[:most]) + (f" and {more} more" if more > 0 else "")
