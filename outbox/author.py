"""Who makes the change: the user of the request, or whom acting_as() names."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from pathlib import Path

from outbox.conf import NAME_LENGTH

# Asked only if something is recorded: finding the user of a request can cost a query.
Who = Callable[[], str | None]

_who: ContextVar[Who | None] = ContextVar("outbox_author", default=None)


def current() -> str | None:
    """The author of what is recorded now, cut to the 64 characters that a message can have.

    Outside of requests, tasks and acting_as() it is the command of manage.py that runs, if any.
    """
    who = _who.get()
    name = _command() if who is None else who()
    return name[:NAME_LENGTH] if name else None


@contextmanager
def acting_as(author: str | None) -> Iterator[None]:
    """What is recorded in the block has this author; also usable as a decorator."""
    with asking(lambda: author):
        yield


@contextmanager
def asking(who: Who) -> Iterator[None]:
    """What is recorded in the block has the author that `who` then returns."""
    token = begin(who)
    try:
        yield
    finally:
        end(token)


def begin(who: Who) -> Token[Who | None]:
    """As asking(), until end()."""
    return _who.set(who)


def end(token: Token[Who | None]) -> None:
    """The author is again whom it was before begin()."""
    _who.reset(token)


def _command() -> str | None:
    program, *arguments = sys.argv or [""]
    if Path(program).name in {"manage.py", "django-admin"} and arguments:
        return f"manage.py {arguments[0]}"
    return None
