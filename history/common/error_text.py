"""Describes errors for logs and terminals, without quoting a row or a document."""

import traceback
from collections.abc import Iterator

import psycopg
from django.db import Error as DjangoDatabaseError

# The first two characters of some SQLSTATEs: errors of data, of constraints and of triggers. The
# messages of these errors can quote a value of a row.
_CLASSES_QUOTING_VALUES = ("22", "23", "P0")


def describe(error: BaseException) -> str:
    """Describe an error in one line.

    For an error of the database server, the line has the SQLSTATE. It also has the server's message
    if this kind of message cannot quote a value. DETAIL and CONTEXT quote the failed row, so they
    are always left out.
    """
    name = type(error).__name__
    cause = error.__cause__ if isinstance(error, DjangoDatabaseError) else error
    if isinstance(cause, psycopg.Error):
        sqlstate = cause.sqlstate
        if sqlstate is None:  # raised by the client, for example for a lost connection
            return f"{name}: {_get_first_line(cause)}"
        if sqlstate.startswith(_CLASSES_QUOTING_VALUES):
            return f"{name}: SQLSTATE {sqlstate}"
        # An error that Annals or psycopg raises with an SQLSTATE has no message of the server.
        text = (cause.diag.message_primary or str(cause)).split("\n", 1)[0]
        return f"{name}: SQLSTATE {sqlstate}: {text}"
    if isinstance(error, DjangoDatabaseError):
        return f"{name}: {_get_first_line(error)}"
    text = str(error)
    return f"{name}: {text}" if text else name


def format_trace(error: BaseException | None) -> str:
    """Format the stack traces of an error and its causes, oldest first; "" for None.

    Each trace ends with the description of its error. See `describe`.
    """
    parts = [
        "".join(traceback.format_tb(e.__traceback__)) + describe(e) for e in _iterate_chain(error)
    ]
    return "\n".join(reversed(parts))


def is_database_error(error: BaseException) -> bool:
    """Return whether the error, or an error that led to it, is a database error."""
    return any(isinstance(e, psycopg.Error | DjangoDatabaseError) for e in _iterate_chain(error))


def is_forbidden(error: BaseException) -> bool:
    """Return whether PostgreSQL refused a statement because the login lacks a right."""
    return any(isinstance(e, psycopg.errors.InsufficientPrivilege) for e in iterate_causes(error))


def iterate_causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error and the errors that it was explicitly raised from, newest first."""
    while error is not None:
        yield error
        error = error.__cause__


def _get_first_line(error: BaseException) -> str:
    return str(error).split("\n", 1)[0]


def _iterate_chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error and all errors that the interpreter would print with it, newest first."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
