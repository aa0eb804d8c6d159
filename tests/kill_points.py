"""Simulates a process that is killed between two SQL statements, without a real process."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest


class ProcessKilled(BaseException):
    """Raised where the simulated process is killed."""


@contextmanager
def kill_before_statement(statements: int) -> Iterator[None]:
    """Break the connection before the next statement when this number of statements has run.

    The server rolls back the open transaction, as after the end of a process.
    """
    remaining = statements
    real: dict[str, Callable[..., Any]] = {
        name: getattr(psycopg.Cursor, name) for name in ("execute", "copy")
    }

    def make_counting(name: str) -> Callable[..., Any]:
        def call_or_kill(cursor: psycopg.Cursor[Any], *arguments: Any, **more: Any) -> Any:
            nonlocal remaining
            if remaining <= 0:
                cursor.connection.close()
                raise ProcessKilled
            remaining -= 1
            return real[name](cursor, *arguments, **more)

        return call_or_kill

    with pytest.MonkeyPatch.context() as patch:
        for name in real:
            patch.setattr(psycopg.Cursor, name, make_counting(name))
        yield
