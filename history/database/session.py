"""What each session of Annals in PostgreSQL sets itself. A login can change the defaults of its own
sessions (ALTER ROLE .. SET), so one injected statement could otherwise lock Annals out for good.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import psycopg

# Of all parameters that a login may set, those with which Annals does not work, answers wrongly or
# loses its session.
SESSION: Final[Mapping[str, str]] = {
    "timezone": "UTC",
    "datestyle": "ISO, MDY",
    "search_path": "public",
    "row_security": "on",
    "default_transaction_read_only": "off",
    "default_transaction_isolation": "read committed",
    "transaction_timeout": "0",
    "idle_session_timeout": "0",
    "exit_on_error": "off",
    "array_nulls": "on",
    "temp_buffers": "8MB",
    "local_preload_libraries": "",
    "default_table_access_method": "heap",
    # In a cluster (docs/citus.md) a session opens one connection to each node, not sixteen: the
    # limits of the logins count there too, and a row that a consumer stores costs a worker half as
    # much again where a batch opens more. To any other server it is a name like any other.
    "citus.max_adaptive_executor_pool_size": "1",
    "citus.enable_router_execution": "on",
    "citus.multi_task_query_log_level": "off",
    "citus.local_table_join_policy": "auto",
    "citus.subquery_pushdown": "off",
    "citus.node_connection_timeout": "30000",
}

# Parameters that not every supported server knows, and since which one: it refuses a session that
# sets one that it does not know. The number is that of SHOW server_version_num.
SINCE: Final[Mapping[str, int]] = {"transaction_timeout": 170_000}

# By host and port: servers of this process.
_releases: dict[tuple[object, object], int] = {}


def options(given: Mapping[str, str]) -> str:
    """Settings as the parameter `options` of libpq: they count from the first moment of a session
    on, before any default of its login."""
    return " ".join(f"-c {name}={_escaped(value)}" for name, value in given.items())


def fitted(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a connection, without those of `options` that its server does not know.

    The first time a session without any of SINCE is opened: it tells the release of the server
    before it runs a statement, which a default of the login could end. Raises
    psycopg.OperationalError.
    """
    server = parameters.get("host"), parameters.get("port")
    if server not in _releases:
        with psycopg.connect(**_without(SINCE, parameters)) as connection:
            _releases[server] = connection.info.server_version
    release = _releases[server]
    return _without([name for name, since in SINCE.items() if release < since], parameters)


def _without(names: Iterable[str], parameters: Mapping[str, Any]) -> dict[str, Any]:
    text = parameters.get("options") or ""
    for name in names:
        text = re.sub(rf"-c {name}=\S*\s*", "", text)
    return {**parameters, "options": text}


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")
