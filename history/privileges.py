"""Warns when a process that needs few rights in the database has them all."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Thread
from typing import Any

import psycopg

from history.entities import ROOT

log = logging.getLogger(__name__)


def complaint(connection: psycopg.Connection[Any]) -> str | None:
    """What is wrong with the login of this connection, for the web or the consumer: a sentence, or
    None. Raises psycopg.Error."""
    row = connection.execute(
        "SELECT current_user, r.rolsuper, coalesce(pg_has_role(c.relowner, 'USAGE'), false)"
        " FROM pg_roles r LEFT JOIN pg_class c ON c.oid = to_regclass(%s)"
        " WHERE r.rolname = current_user",
        [ROOT.table],
    ).fetchone()
    if row is None or not (row[1] or row[2]):
        return None
    what = "is a superuser of PostgreSQL" if row[1] else "owns the tables"
    return (
        f"The database login {row[0]!r} of this process {what}: a fault of the process could "
        "change the history. Give it a login of its own with `manage.py grants`; "
        "docs/operations.md says how."
    )


def warn_in_background(connect: Callable[[], psycopg.Connection[Any]]) -> None:
    """Log a warning if there is a complaint about the login. Nothing waits for the database, and
    one that does not answer is reported elsewhere."""
    Thread(target=_warn, args=[connect], daemon=True).start()


def _warn(connect: Callable[[], psycopg.Connection[Any]]) -> None:
    try:
        with connect() as connection:
            text = complaint(connection)
    except psycopg.Error:
        return
    if text is not None:
        log.warning("%s", text)
