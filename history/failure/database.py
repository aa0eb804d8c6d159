"""Sentences about PostgreSQL: no connection, a login that is refused, rights, tables, disk."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import psycopg
from django.db import Error as DjangoDatabaseError
from django.db import connection
from psycopg import errors
from psycopg_pool import PoolTimeout

from history.base.error_text import causes, describe

# What libpq, psycopg and the server say where there is no connection. {} is the place.
_REFUSED: Final[Mapping[str, str]] = {
    r"no password supplied": "PostgreSQL at {place} asks for the password of {user}, and none is "
    "given. Write it into DATABASE_URL, or as {place}:{name}:{user}:PASSWORD into a file of mode "
    "0600 that PGPASSFILE names",
    r"password authentication failed|authentication failed|"
    r"role .*(does not exist|is not permitted)": "PostgreSQL at {place} refuses the login {user}: "
    "its password is wrong, or there is no such login. Correct user and password in {where}",
    r"database .*does not exist": "PostgreSQL at {place} has no database {name}. Correct its name "
    "in DATABASE_URL, or create it",
    r"pg_hba.conf": "PostgreSQL at {place} does not admit the login {user} to the database {name} "
    "from this machine{open}. Correct DATABASE_URL{tls}, or let pg_hba.conf of the server admit it",
    r"server does not support SSL": "PostgreSQL at {place} offers no TLS, which sslmode in "
    "DATABASE_URL asks for. Turn on TLS there, or correct sslmode",
    r"certificate|SSL error": "PostgreSQL at {place}: {said}. Correct sslmode, sslrootcert, "
    "sslcert and sslkey in DATABASE_URL",
    r"invalid (\w+) value|invalid connection option|invalid integer value": "{said}. Correct "
    "DATABASE_URL",
}
_AWAY: Final[Mapping[str, str]] = {
    r"failed to resolve host|could not translate host name": "no server has the name of the host "
    "{host}",
    r"Connection refused": "no PostgreSQL listens at {place}",
    r"timeout expired|timed out": "PostgreSQL at {place} did not answer within {seconds} seconds",
    r"too many (clients|connections)|connection slots": "PostgreSQL at {place} has no connection "
    "left for the login {user}",
    r"starting up|shutting down|in recovery|not yet accepting": "PostgreSQL at {place} is starting "
    "or stopping",
}
_STATES: Final[Mapping[str, str]] = {
    "25006": "the database at {place} is read-only, as a standby is. Let DATABASE_URL name the "
    "primary",
    "53100": "the disk of PostgreSQL at {place} is full. Make room there",
    "57014": "PostgreSQL at {place} ended a statement that took too long or was cancelled",
    "57P01": "PostgreSQL at {place} was stopped meanwhile. Try again when it runs",
}
_LOST: Final = re.compile(r"server closed the connection|connection (is|was) (lost|closed)")
_NEXT: Final = "Check DATABASE_URL and whether PostgreSQL runs"


def of_database(error: BaseException) -> str | None:
    """The sentence about an error of the database; None if it is of something else. May open a
    connection, to find out why there was none or which tables are there."""
    from history import schema

    found = [each for each in causes(error) if isinstance(each, psycopg.Error | PoolTimeout)]
    if not found:
        is_django = any(isinstance(each, DjangoDatabaseError) for each in causes(error))
        return f"the database: {describe(error)}" if is_django else None
    cause = found[-1]
    if (why := no_connection(cause)) is not None:
        return why
    if (why := schema.behind(error)) is not None:
        return why.rstrip(".")
    if isinstance(cause, errors.InsufficientPrivilege):
        return (
            f"the login {_words()['user']} may not do that ({describe(cause)}). "
            "docs/operations.md says which login runs which command"
        )
    state: str | None = getattr(cause, "sqlstate", None)
    if state is not None and state in _STATES:
        return _STATES[state].format(**_words())
    if state is None and _LOST.search(str(cause)):
        return f"PostgreSQL at {_words()['place']} closed the connection. {_NEXT}"
    return f"PostgreSQL at {_words()['place']}: {describe(cause)}"


def no_connection(error: BaseException) -> str | None:
    """Why there was no connection; None for another error. The pool says only that it waited, so
    one more connection is tried."""
    if isinstance(error, PoolTimeout):
        try:
            psycopg.connect(**connection.get_connection_params()).close()
        except psycopg.OperationalError as refused:
            return no_connection(refused)
        return f"no connection to PostgreSQL at {_words()['place']} was free in time. {_NEXT}"
    if not _is_of_connecting(error):
        return None
    text = str(error)
    words = _words()
    for pattern, sentence in _REFUSED.items():
        if re.search(pattern, text):
            return sentence.format(**words, **_tls(text), said=_said(text))
    for pattern, sentence in _AWAY.items():
        if re.search(pattern, text):
            return f"{sentence.format(**words)}. {_NEXT}"
    return f"no connection to PostgreSQL at {words['place']}: {_said(text)}. {_NEXT}"


def is_refused(error: BaseException) -> bool:
    """Whether the settings of DATABASE_URL are refused, such as a password: it does not help to
    try again with the same."""
    return _is_of_connecting(error) and any(re.search(each, str(error)) for each in _REFUSED)


def _is_of_connecting(error: BaseException) -> bool:
    """Whether it is an error of a connection that was never there: it has no code of the server."""
    if not isinstance(error, psycopg.OperationalError) or error.sqlstate is not None:
        return False
    text = str(error)
    return isinstance(error, errors.ConnectionTimeout) or text.startswith(
        ("connection failed", "connection is bad", "failed to resolve host", "connection timeout")
    )


def _said(text: str) -> str:
    """What libpq says, without the address before it and without what follows in more lines."""
    line = text.split("\n", 1)[0]
    line = re.sub(r"^connection (failed|is bad): (connection to server at .*? failed: )?", "", line)
    return re.sub(r"^[^:]{1,40}:  ", "", line).rstrip(". ")


def _tls(text: str) -> dict[str, str]:
    unencrypted = "no encryption" in text or "SSL off" in text
    return {
        "open": " without TLS" if unencrypted else "",
        "tls": " (sslmode=require gives TLS)" if unencrypted else "",
    }


def _words() -> dict[str, object]:
    """Where DATABASE_URL leads, in words; nothing of its password."""
    given = connection.settings_dict
    hosts, ports = str(given["HOST"]).split(","), str(given["PORT"]).split(",")
    if len(ports) == 1:
        ports *= len(hosts)
    pairs = zip(hosts, ports, strict=False)
    place = ", ".join(f"{host or 'the local socket'}:{port or 5432}" for host, port in pairs)
    return {
        "place": place,
        "host": ", ".join(hosts),
        "user": given["USER"] or "(none)",
        "name": given["NAME"],
        "seconds": given["OPTIONS"].get("connect_timeout", "some"),
        "where": "DATABASE_URL" if given["PASSWORD"] else "DATABASE_URL and the file of PGPASSFILE",
    }
