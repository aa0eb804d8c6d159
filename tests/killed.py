"""A process that ends between any two statements, without a process."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest


class Killed(BaseException):
    """As if the process had ended here."""


@contextmanager
def killed_before(statements: int) -> Iterator[None]:
    """The process that runs in this block ends before its n-th statement: its connection breaks,
    and the server rolls back what was open."""
    left = statements
    real: dict[str, Callable[..., Any]] = {
        name: getattr(psycopg.Cursor, name) for name in ("execute", "copy")
    }

    def counting(name: str) -> Callable[..., Any]:
        def call(cursor: psycopg.Cursor[Any], *arguments: Any, **more: Any) -> Any:
            nonlocal left
            if left <= 0:
                cursor.connection.close()
                raise Killed
            left -= 1
            return real[name](cursor, *arguments, **more)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in real:
            patch.setattr(psycopg.Cursor, name, counting(name))
        yield
