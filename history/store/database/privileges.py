"""Warns if the database login of a process has too many rights, or too few."""

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from threading import Thread
from typing import Any, Final

import psycopg

from history.common.error_text import describe
from history.kinds.entities import ENTITIES

log = logging.getLogger(__name__)

MOST_NAMED: Final = 5

Right = tuple[str, str, str]  # table, right, and column, "" for the whole table

# Matches one right in a list of rights, and its columns.
_RIGHT: Final = re.compile(r"([A-Z]+)(?: \(([^)]*)\))?")
# Tables that do not exist yet are left out: the check of the migrations reports them.
_MISSING: Final = """
SELECT needed.right_name || ' on ' || needed.name
    || CASE WHEN needed.col = '' THEN '' ELSE '.' || needed.col END
FROM unnest(%s::text[], %s::text[], %s::text[]) AS needed (name, right_name, col)
JOIN pg_class c ON c.relname = needed.name AND c.relnamespace = 'public'::regnamespace
WHERE NOT CASE WHEN needed.col = '' THEN has_table_privilege(c.oid, needed.right_name)
    ELSE has_column_privilege(c.oid, needed.col, needed.right_name) END
ORDER BY 1
"""


def iterate_rights(table: str, rights: str) -> Iterator[Right]:
    """Yield each right in `rights`, a text as in GRANT, such as "INSERT, UPDATE (name, kind)".

    A right on several columns is yielded once for each column.
    """
    for right, columns in _RIGHT.findall(rights):
        yield from ((table, right, column) for column in (columns.split(", ")))


def build_missing_query(rights: Iterable[Right]) -> tuple[str, list[list[str]]]:
    """Return a statement, and its values, that selects which of these rights the login lacks.

    Each row is a text, for example "INSERT on access_journal.login".
    """
    return _MISSING, [list(column) for column in zip(*rights, strict=True)]


def explain_lacking_rights(
    connection: psycopg.Connection[Any], rights: Iterable[Right]
) -> str | None:
    """Return a sentence that names the rights this login lacks, or None if it has all.

    Raises:
        psycopg.Error: The server does not answer.
    """
    lacking_rights = [
        text for (text,) in connection.execute(*build_missing_query(rights)).fetchall()
    ]
    if not lacking_rights:
        return None
    remainder = (
        f" and {len(lacking_rights) - MOST_NAMED} more" if len(lacking_rights) > MOST_NAMED else ""
    )
    return (
        f"The database login {connection.info.user!r} of this process lacks rights: "
        f"{', '.join(lacking_rights[:MOST_NAMED])}{remainder}. Run `annals grants --apply` as "
        "the owner of the "
        "tables, and give each process its own login."
    )


def explain_wrong_login(connection: psycopg.Connection[Any]) -> str | None:
    """Return a sentence if this login is a superuser or owns the tables, otherwise None.

    Raises:
        psycopg.Error: The server does not answer.
    """
    row = connection.execute(
        "SELECT current_user, r.rolsuper, coalesce(pg_has_role(c.relowner, 'USAGE'), false)"
        " FROM pg_roles r LEFT JOIN pg_class c ON c.oid = to_regclass(%s)"
        " WHERE r.rolname = current_user",
        [ENTITIES[0].table],
    ).fetchone()
    if row is None or not (row[1] or row[2]):
        return None
    fault = "is a superuser of PostgreSQL" if row[1] else "owns the tables"
    return (
        f"The database login {row[0]!r} of this process {fault}: a fault of the process could "
        "change the history. Give it a login of its own with `annals grants`; "
        "docs/operations.md says how."
    )


def warn_in_background(
    connect: Callable[[], psycopg.Connection[Any]], rights: Iterable[Right] = ()
) -> None:
    """Check the login of this process in a thread, so that the caller need not wait.

    Logs a warning if the login has too many rights, and an error if it lacks one of `rights`.
    """
    Thread(target=_warn, args=[connect, tuple(rights)], daemon=True).start()


def _warn(connect: Callable[[], psycopg.Connection[Any]], rights: tuple[Right, ...]) -> None:
    try:
        with connect() as connection:
            text = explain_wrong_login(connection)
            lacking_rights = (
                explain_lacking_rights(connection, rights) if rights and text is None else None
            )
    except psycopg.Error as error:
        log.warning("The database login of this process was not checked: %s", describe(error))
        return
    if text is not None:
        log.warning("%s", text)
    elif lacking_rights is not None:
        log.error("%s", lacking_rights)
