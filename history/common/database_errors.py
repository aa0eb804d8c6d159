"""Sentences about PostgreSQL: no connection, a login that is refused, rights, tables, disk."""

import re
from collections.abc import Mapping
from typing import Final

import psycopg
from django.db import Error as DjangoDatabaseError
from django.db import connection
from psycopg import errors
from psycopg_pool import PoolTimeout

from history.common.error_text import describe, iterate_causes

# What is said where there is no connection: refused for good, or away. {said} is the server's own.
_REFUSED: Final[Mapping[str, str]] = {
    r"no password supplied": "PostgreSQL at {place} asks for the password of {user}, and none is "
    "given. Write it into DATABASE_URL, or as {place}:{name}:{user}:PASSWORD into a file of mode "
    "0600 that PGPASSFILE names",
    r"authentication failed|role .*(does not exist|is not permitted)": "PostgreSQL at {place} "
    "refuses the login {user}: its password is wrong, or there is no such login. Correct user and "
    "password in {where}",
    r"database .*does not exist": "PostgreSQL at {place} has no database {name}. Correct its name "
    "in DATABASE_URL, or create it",
    r"pg_hba.conf|SSL|certificate|invalid .*(value|option)|unsupported startup parameter": (
        "PostgreSQL at {place}: {said}. Correct DATABASE_URL, or what pg_hba.conf admits"
    ),
}
_AWAY: Final[Mapping[str, str]] = {
    r"failed to resolve host|could not translate host name": "no server has the name of the host "
    "{host}",
    r"Connection refused": "no PostgreSQL listens at {place}",
    r"timeout expired|timed out": "PostgreSQL at {place} did not answer within {seconds} seconds",
}
_NEXT: Final = "Check DATABASE_URL and whether PostgreSQL runs"


def explain_database_error(error: BaseException) -> str | None:
    """The sentence about an error of the database; None if it is of something else."""
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
    """Why there was no connection; None for another error. Before the pool waits for one, its
    backend has asked the server (history.store.database.base)."""
    if isinstance(error, PoolTimeout):
        return (
            f"no connection to PostgreSQL at {_describe_target()['place']} was free in time. "
            f"{_NEXT}"
        )
    if not _is_connection_error(error):
        return None
    text = str(error)
    words = _describe_target()
    for pattern, sentence in _REFUSED.items():
        if re.search(pattern, text):
            return sentence.format(**words, said=_shorten_message(text))
    for pattern, sentence in _AWAY.items():
        if re.search(pattern, text):
            return f"{sentence.format(**words)}. {_NEXT}"
    return f"no connection to PostgreSQL at {words['place']}: {_shorten_message(text)}. {_NEXT}"


def is_refused(error: BaseException) -> bool:
    """Whether the settings of DATABASE_URL are refused, for good."""
    return _is_connection_error(error) and any(
        re.search(pattern, str(error)) for pattern in _REFUSED
    )


def _is_connection_error(error: BaseException) -> bool:
    """Whether it is an error of a connection that was never there: it has no code of the server."""
    if not isinstance(error, psycopg.OperationalError) or error.sqlstate is not None:
        return False
    text = str(error)
    return isinstance(error, errors.ConnectionTimeout) or text.startswith(
        ("connection failed", "connection is bad", "failed to resolve host", "connection timeout")
    )


def _shorten_message(text: str) -> str:
    """What libpq says, without the address before it and without what follows in more lines."""
    line = text.split("\n", 1)[0]
    line = re.sub(r"^connection (failed|is bad): (connection to server at .*? failed: )?", "", line)
    return re.sub(r"^[^:]{1,40}:  ", "", line).rstrip(". ")


def _describe_target() -> dict[str, object]:
    """Where DATABASE_URL leads, in words; nothing of its password."""
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
