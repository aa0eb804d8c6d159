"""The text of an error, for logs and terminals. It never contains a row or a document."""

import traceback
from collections.abc import Iterator

import psycopg
from django.db import Error as DjangoDatabaseError

# A message of these classes of SQLSTATE can quote a value: data, constraints, triggers.
_QUOTING = ("22", "23", "P0")


def describe(error: BaseException) -> str:
    """Describe an error in one line.

    A database error gives its SQLSTATE, and its message only if the message cannot quote a value.
    DETAIL and CONTEXT are left out: they quote the failed row.
    """
    name = type(error).__name__
    cause = error.__cause__ if isinstance(error, DjangoDatabaseError) else error
    if isinstance(cause, psycopg.Error):
        state = cause.sqlstate
        if state is None:  # raised by the client: connection refused or lost
            return f"{name}: {_get_first_line(cause)}"
        # Without a message of the server the error was raised by Annals or by psycopg.
        text = (cause.diag.message_primary or str(cause)).split("\n", 1)[0]
        return f"{name}: SQLSTATE {state}" + ("" if state[:2] in _QUOTING else f": {text}")
    if isinstance(error, DjangoDatabaseError):
        return f"{name}: {_get_first_line(error)}"
    text = str(error)
    return f"{name}: {text}" if text else name


def format_trace(error: BaseException | None) -> str:
    """Format the stack of an error and its causes, oldest first, each described; "" for None."""
    parts = [
        "".join(traceback.format_tb(e.__traceback__)) + describe(e) for e in _iterate_chain(error)
    ]
    return "\n".join(reversed(parts))


def is_of_database(error: BaseException) -> bool:
    """Return whether the error or one of its causes is a database error."""
    return any(isinstance(e, psycopg.Error | DjangoDatabaseError) for e in _iterate_chain(error))


def is_forbidden(error: BaseException) -> bool:
    """Return whether PostgreSQL refused a statement because the login lacks a right."""
    return any(isinstance(e, psycopg.errors.InsufficientPrivilege) for e in iterate_causes(error))


def _get_first_line(error: BaseException) -> str:
    return str(error).split("\n", 1)[0]


def iterate_causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error and the errors that it was raised from, newest first."""
    while error is not None:
        yield error
        error = error.__cause__


def _iterate_chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error and its causes, newest first, as the interpreter would print them."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
