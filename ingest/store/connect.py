"""How ingest gets its own connection to the database: Django's are for requests."""

from __future__ import annotations

import psycopg
from django.conf import settings
from django.db import connection as django_connection
from psycopg.conninfo import make_conninfo

from ingest.store.ledger import Connection

# A frozen or cut-off consumer must not hold its rows' locks for longer than this.
TRANSACTION_TIMEOUT = "60s"
IDLE_IN_TRANSACTION_TIMEOUT = "10s"
# After so long a wait for a lock somebody looks whether a frozen consumer holds it.
LOCK_TIMEOUT = "10s"
# A server that vanished without a word (its host died) is given up after half a minute.
NOTICE_DEAD = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}


def connect(purpose: str = "annals-consume") -> Connection:
    """A new connection in autocommit mode, in UTC, planned for looking up few rows in many days.

    Raises psycopg.OperationalError where the database does not answer within seconds.
    """
    conninfo = make_conninfo(
        settings.ANNALS.database_url or "",
        dbname=django_connection.settings_dict["NAME"],
        application_name=purpose,
        connect_timeout=5,
        **NOTICE_DEAD,
    )
    connection = psycopg.connect(conninfo, autocommit=True)
    timeout = (
        "transaction_timeout" if connection.info.server_version >= 170000 else "statement_timeout"
    )
    for name, value in {
        "timezone": "UTC",
        timeout: TRANSACTION_TIMEOUT,
        "idle_in_transaction_session_timeout": IDLE_IN_TRANSACTION_TIMEOUT,
        "lock_timeout": LOCK_TIMEOUT,
        # Repeats are looked up by primary key. A plan that reads whole days instead, chosen while
        # a young day has no statistics, would be a thousand times slower.
        "enable_seqscan": "off",
        "enable_bitmapscan": "off",
        "enable_hashjoin": "off",
        "enable_mergejoin": "off",
    }.items():
        connection.execute("SELECT set_config(%s, %s, false)", (name, value))
    return connection


def end_frozen(connection: Connection) -> int:
    """End the sessions of consumers that stopped in the middle of a COPY, and count them.

    PostgreSQL's own timeouts do not: while it waits for the next bytes of a COPY it looks at none
    of them, and the kernel of a frozen process goes on answering for it. What such a session
    has written stays locked until it wakes; whoever was given its partitions would wait for that.
    """
    return connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE usename = current_user AND datname = current_database()"
        " AND application_name LIKE 'annals-%%'"
        " AND pid <> pg_backend_pid() AND state = 'active' AND wait_event = 'ClientRead'"
        " AND query_start < now() - %s::interval",
        (LOCK_TIMEOUT,),
    ).rowcount
