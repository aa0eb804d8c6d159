"""What each session of Annals in PostgreSQL sets itself. A login can change the defaults of its own
sessions (ALTER ROLE .. SET), so one injected statement could otherwise lock Annals out for good.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

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
}


def options(given: Mapping[str, str]) -> str:
    """Settings as the parameter `options` of libpq: they count from the first moment of a session
    on, before any default of its login."""
    return " ".join(f"-c {name}={_escaped(value)}" for name, value in given.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")
