"""The settings of PostgreSQL that Annals sets in each of its sessions."""

from collections.abc import Mapping
from typing import Any, Final

import psycopg

# A setting without effect in PostgreSQL. If a session does not have it, something has dropped all
# settings of the session.
SESSION_MARK: Final = "annals.session"

# The settings of each session. With other values, which a login may have, Annals would fail, answer
# wrongly or lose sessions.
SESSION: Final[Mapping[str, str]] = {
    "timezone": "UTC",
    "datestyle": "ISO, MDY",
    "search_path": "public",
    "row_security": "on",
    "default_transaction_read_only": "off",
    "default_transaction_isolation": "read committed",
    "idle_session_timeout": "0",
    "exit_on_error": "off",
    # With these two values PostgreSQL reads list parameters as psycopg writes them.
    "standard_conforming_strings": "on",
    "array_nulls": "on",
    "temp_buffers": "8MB",
    # Compiling a plan over all days can take longer than running it.
    "jit": "off",
    "local_preload_libraries": "",
    "default_table_access_method": "heap",
    # On a cluster (docs/citus.md) a session opens one connection to each node instead of sixteen:
    # the nodes limit connections, and each costs a worker memory. Other servers ignore the setting.
    "citus.max_adaptive_executor_pool_size": "1",
    "citus.enable_router_execution": "on",
    "citus.multi_task_query_log_level": "off",
    "citus.local_table_join_policy": "auto",
    "citus.subquery_pushdown": "off",
    "citus.node_connection_timeout": "30000",
    SESSION_MARK: "1",
}


# Settings of a server that keep rows and parameters out of its log (docs/decisions/0009-logs.md).
QUIET_LOG: Final[Mapping[str, str]] = {
    "log_min_messages": "log",
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
    "log_statement": "none",
    **dict.fromkeys(("log_min_duration_statement", "log_min_duration_sample"), "-1"),
    **dict.fromkeys(("log_parameter_max_length", "log_parameter_max_length_on_error"), "0"),
    "log_transaction_sample_rate": "0",
    **dict.fromkeys(("session_preload_libraries", "shared_preload_libraries"), ""),
}


def explain_dropped_settings(connection: psycopg.Connection[Any]) -> str | None:
    """Return a sentence that says why this session lacks its settings, or None if it has them."""
    row = connection.execute("SELECT current_setting(%s, true)", [SESSION_MARK]).fetchone()
    if row == ("1",):
        return None
    return (
        "A pooler between Annals and PostgreSQL drops the settings of its sessions, as PgBouncer "
        "does with ignore_startup_parameters = options: the consumer would store wrongly, and "
        "locks of `partitions` would have no effect. Let DATABASE_URL lead to PostgreSQL itself"
    )


def build_options(parameters: Mapping[str, str]) -> str:
    """Build libpq's parameter `options` from settings."""
    return " ".join(f"-c {name}={_escape(value)}" for name, value in parameters.items())


def remove_time_limit(connection: psycopg.Connection[Any]) -> None:
    """Remove the login's limit on the duration of transactions from a new session.

    The limit cannot be an option of the connection, because servers before PostgreSQL 17 do not
    know it and would refuse the connection.

    Raises:
        psycopg.Error: The server does not answer.
    """
    if connection.info.server_version >= 170_000:
        connection.execute("SET transaction_timeout TO 0")


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")
