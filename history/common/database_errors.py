"""Explains errors of PostgreSQL: no connection, a refused login, missing rights or tables."""

import re
from collections.abc import Mapping
from typing import Final

import psycopg
from django.db import Error as DjangoDatabaseError
from django.db import connection
from psycopg import errors
from psycopg_pool import PoolTimeout

from history.common.error_text import describe, iterate_causes

# Sentences for failed connections, by a regular expression that matches the message of the server
# or of libpq. {message} is this message. In _REFUSED, the server refuses the connection until
# somebody changes a setting. In _UNREACHABLE, the server does not answer now.
_REFUSED: Final[Mapping[str, str]] = {
    r"no password supplied": "PostgreSQL at {place} asks for the password of {user}, but "
    "DATABASE_URL has none. Write the password into DATABASE_URL, or the line "
    "{place}:{name}:{user}:PASSWORD into a file of mode 0600 that PGPASSFILE names",
    r"authentication failed|role .*(does not exist|is not permitted)": "PostgreSQL at {place} "
    "refuses the login {user}: its password is wrong, or there is no such login. Correct user and "
    "password in {where}",
    r"database .*does not exist": "PostgreSQL at {place} has no database {name}. Correct its name "
    "in DATABASE_URL, or create it",
    r"pg_hba.conf|SSL|certificate|invalid .*(value|option)|unsupported startup parameter": (
        "PostgreSQL at {place}: {message}. Correct DATABASE_URL or pg_hba.conf"
    ),
}
_UNREACHABLE: Final[Mapping[str, str]] = {
    r"failed to resolve host|could not translate host name": "no server has the host name {host}",
    r"Connection refused": "no PostgreSQL listens at {place}",
    r"timeout expired|timed out": "PostgreSQL at {place} did not answer within {seconds} seconds",
}
_ADVICE: Final = "Check DATABASE_URL and whether PostgreSQL runs"


def explain_database_error(error: BaseException) -> str | None:
    """Return a sentence about a database error, or None for any other error."""
    from history.common import schema

    database_errors = [
        error_cause
        for error_cause in iterate_causes(error)
        if isinstance(error_cause, psycopg.Error | PoolTimeout)
    ]
    if not database_errors:
        is_django = any(
            isinstance(error_cause, DjangoDatabaseError) for error_cause in iterate_causes(error)
        )
        return f"the database: {describe(error)}" if is_django else None
    cause = database_errors[-1]
    if (reason := explain_no_connection(cause)) is not None:
        return reason
    if (reason := schema.explain_older_tables(error)) is not None:
        return reason.rstrip(".")
    if isinstance(cause, errors.InsufficientPrivilege):
        return (
            f"the login {_describe_target()['user']} may not do that ({describe(cause)}). "
            "docs/operations.md says which login runs which command"
        )
    return f"PostgreSQL at {_describe_target()['place']}: {describe(cause)}"


def explain_no_connection(error: BaseException) -> str | None:
    """Return a sentence about a failed connection, or None for any other error.

    A PoolTimeout means that all connections of the pool were busy. The server is not down then: the
    database backend (history.store.database.base) has checked the server before it waited for the
    pool.
    """
    if isinstance(error, PoolTimeout):
        return (
            f"no connection to PostgreSQL at {_describe_target()['place']} was free in time. "
            f"{_ADVICE}"
        )
    if not _is_connection_error(error):
        return None
    text = str(error)
    target = _describe_target()
    message = _shorten_message(text)
    for pattern, sentence in _REFUSED.items():
        if re.search(pattern, text):
            return sentence.format(**target, message=message)
    for pattern, sentence in _UNREACHABLE.items():
        if re.search(pattern, text):
            return f"{sentence.format(**target)}. {_ADVICE}"
    return f"no connection to PostgreSQL at {target['place']}: {message}. {_ADVICE}"


def is_refused(error: BaseException) -> bool:
    """Return whether the server refuses DATABASE_URL, so that trying again cannot help."""
    return _is_connection_error(error) and any(
        re.search(pattern, str(error)) for pattern in _REFUSED
    )


def _is_connection_error(error: BaseException) -> bool:
    """Return whether the error means that no connection could be made.

    Such an error is recognized by its text: it does not have an SQLSTATE.
    """
    if not isinstance(error, psycopg.OperationalError) or error.sqlstate is not None:
        return False
    text = str(error)
    return isinstance(error, errors.ConnectionTimeout) or text.startswith(
        ("connection failed", "connection is bad", "failed to resolve host", "connection timeout")
    )


def _shorten_message(text: str) -> str:
    """Return the first line of libpq's message, without the address before it."""
    line = text.split("\n", 1)[0]
    line = re.sub(r"^connection (failed|is bad): (connection to server at .*? failed: )?", "", line)
    return re.sub(r"^[^:]{1,40}:  ", "", line).rstrip(". ")


def _describe_target() -> dict[str, object]:
    """Describe the server that DATABASE_URL names, without its password."""
    parameters = connection.settings_dict
    hosts, ports = str(parameters["HOST"]).split(","), str(parameters["PORT"]).split(",")
    if len(ports) == 1:
        ports *= len(hosts)
    pairs = zip(hosts, ports, strict=False)
    place = ", ".join(f"{host or 'the local socket'}:{port or 5432}" for host, port in pairs)
    return {
        "place": place,
        "host": ", ".join(hosts),
        "user": parameters["USER"] or "(none)",
        "name": parameters["NAME"],
        "seconds": parameters["OPTIONS"].get("connect_timeout", "some"),
        "where": "DATABASE_URL"
        if parameters["PASSWORD"]
        else "DATABASE_URL and the file of PGPASSFILE",
    }
