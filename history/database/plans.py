"""Whether a session plans prepared statements anew for each of their values."""

from __future__ import annotations

from typing import Any, Final

import psycopg

from history import distribution

_FITTED: Final = "_annals_plans"


def fit(connection: psycopg.Connection[Any]) -> None:
    """Let the server choose where the tables are distributed, once for each connection: what Annals
    sets otherwise (annals.settings), one plan for all values, names no shard. Raises
    psycopg.Error."""
    if getattr(connection, _FITTED, False):
        return
    if distribution.active(connection):
        connection.execute("SET plan_cache_mode TO auto")
    if not connection.autocommit:
        connection.commit()
    setattr(connection, _FITTED, True)
