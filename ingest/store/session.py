"""The consumer's own connections to the database, opened again after a loss."""

import contextlib
import logging
import os
import socket
from collections.abc import Callable
from typing import Final

import psycopg
from django.conf import settings
from django.db import connection as django_connection
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from history.store import distribution
from history.store.database import forms, session
from ingest.store.ledger import Connection

logger = logging.getLogger(__name__)


class DatabaseSession:
    """A connection that is opened when needed. Belongs to one thread, except break_connection."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._open: Connection | None = None

    @property
    def connection(self) -> Connection:
        """The open connection; one is opened if there is none."""
        if self._open is None:
            self._open = self._connect()
            distribution.forget_plain_answer(self._open)
        return self._open

    def break_connection(self) -> None:
        """Break the connection while another thread waits on it. The server rolls back."""
        connection = self._open
        if connection is not None and not connection.closed:
            with (
                contextlib.suppress(OSError, psycopg.Error),
                socket.socket(fileno=os.dup(connection.fileno())) as wire,
            ):
                wire.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection; the next use opens another."""
        if self._open is not None:
            self._open.close()
            self._open = None


# A writer that waited this long for a lock checks whether a frozen consumer holds it.
LOCK_TIMEOUT = "10s"
# Overrides what ALTER ROLE may have set.
SEARCH_PATH = "public"


def open_connection(purpose: str = "annals-consume") -> Connection:
    """Open a connection in autocommit mode, in UTC, with plans for few rows in many days.

    ALTER ROLE .. SET and DATABASE_URL do not change these settings. Raises
    psycopg.OperationalError within seconds.

    Args:
        purpose: The application_name of the session.
    """
    url = settings.ANNALS.database_url or ""
    parameters = {
        **session.SESSION,
        "search_path": SEARCH_PATH,
        # Work that is slow has no limit: a batch that takes longer would be repeated for ever.
        "statement_timeout": "0",
        # So long a consumer that ended during a slow statement holds its row locks,
        "client_connection_check_interval": "2s",
        # and so long one that is frozen between two.
        "idle_in_transaction_session_timeout": "10s",
        "lock_timeout": LOCK_TIMEOUT,
        # Repeats are compared in a temporary table; with the default of 8 MB, in files. A process
        # takes this memory only for a batch with repeats.
        "temp_buffers": "32MB",
        # Repeats are looked up by primary key, never by a plan that reads whole days.
        "enable_seqscan": "off",
        "enable_bitmapscan": "off",
        "enable_hashjoin": "off",
        "enable_mergejoin": "off",
    }
    url_options = conninfo_to_dict(url).get("options", "")
    conninfo = make_conninfo(
        url,
        dbname=django_connection.settings_dict["NAME"],
        application_name=purpose,
        client_encoding="UTF8",  # COPY sends text as UTF-8; the server would take it for another
        connect_timeout=5,
        options=f"{url_options} {session.build_options(parameters)}".strip(),
        # A server that disappears without closing the connection is noticed after 30 seconds.
        keepalives_idle=10,
        keepalives_interval=5,
        keepalives_count=3,
        tcp_user_timeout=30_000,
    )
    connection = psycopg.connect(conninfo, autocommit=True)
    session.remove_time_limit(connection)
    try:
        forms.open_session(connection)
    except psycopg.Error:
        connection.close()
        raise
    return connection


def terminate_frozen(connection: Connection) -> None:
    """Terminate the sessions of consumers that froze during a COPY.

    PostgreSQL checks no timeouts during a COPY, so their rows would stay locked.
    """
    ended = connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE usename = current_user AND datname = current_database()"
        " AND application_name LIKE 'annals-%%'"
        " AND pid <> pg_backend_pid() AND state = 'active' AND wait_event = 'ClientRead'"
        " AND query_start < now() - %s::interval",
        (LOCK_TIMEOUT,),
    ).rowcount
    if ended:
        logger.warning("terminated %d sessions of consumers that froze during a write", ended)


# The settings of a session hold on its own node only. Workers would wait forever without them.
_EVERYWHERE: Final = (
    "SET LOCAL citus.propagate_set_commands TO 'local';"
    f"SET LOCAL lock_timeout TO '{LOCK_TIMEOUT}';"
    "SET LOCAL enable_seqscan TO off; SET LOCAL enable_bitmapscan TO off;"
    "SET LOCAL enable_hashjoin TO off; SET LOCAL enable_mergejoin TO off"
)


def apply_settings_on_nodes(connection: Connection) -> None:
    """Give the current transaction the settings of the session on each node of a cluster."""
    if distribution.is_distributed(connection):
        connection.execute(_EVERYWHERE)
