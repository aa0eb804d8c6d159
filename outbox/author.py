"""Who makes the change: the user of the request, whom acting_as() names, or a task of Celery."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from pathlib import Path
from typing import Any

from outbox.conf import NAME_LENGTH

# Asked only if something is recorded: finding the user of a request can cost a query.
Who = Callable[[], str | None]

_who: ContextVar[Who | None] = ContextVar("outbox_author", default=None)


def current() -> str | None:
    """The author of what is recorded now, cut to the 64 characters that a message can have."""
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
    token = _who.set(who)
    try:
        yield
    finally:
        _who.reset(token)


def _command() -> str | None:
    program, *arguments = sys.argv or [""]
    if Path(program).name in {"manage.py", "django-admin"} and arguments:
        return f"manage.py {arguments[0]}"
    return None


# A header of the task's message.
HEADER = "outbox_author"

_tokens: dict[str, Token[Who | None]] = {}


def connect_tasks() -> None:
    """Have tasks of Celery take the author with them: who sent the task, or the task itself."""
    from celery import signals

    signals.before_task_publish.connect(_sent, dispatch_uid="outbox.author")
    signals.task_prerun.connect(_begins, dispatch_uid="outbox.author")
    signals.task_postrun.connect(_ended, dispatch_uid="outbox.author")


def _sent(headers: dict[str, Any], **_: Any) -> None:
    headers[HEADER] = current()


def _begins(task_id: str, task: Any, **_: Any) -> None:
    # A task that runs where it was called has no message; its author is the present one.
    name = task.request.get(HEADER) or current() or f"task {task.name}"
    _tokens[task_id] = _who.set(lambda: name)


def _ended(task_id: str, **_: Any) -> None:
    token = _tokens.pop(task_id, None)
    if token is not None:
        _who.reset(token)
