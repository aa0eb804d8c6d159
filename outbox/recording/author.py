"""Finds the author of a change: the request's user, the name in acting_as(), or a task's sender."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from pathlib import Path
from typing import Any

from outbox.conf import NAME_LENGTH

# Called only when something is recorded, because finding the user of a request can cost a query.
FindAuthor = Callable[[], str | None]

_find_author: ContextVar[FindAuthor | None] = ContextVar("outbox_author", default=None)


def get_current_author() -> str | None:
    """Return the author for a version that is recorded now.

    The text is cut to 64 characters, the limit of the message contract.
    """
    find_author = _find_author.get()
    name = _name_command() if find_author is None else find_author()
    return name[:NAME_LENGTH] if name else None


@contextmanager
def acting_as(author: str | None) -> Iterator[None]:
    """Make `author` the author of versions recorded in the block. Also usable as a decorator."""
    with use_author_of(lambda: author):
        yield


@contextmanager
def use_author_of(find_author: FindAuthor) -> Iterator[None]:
    """Call `find_author` for the author of versions that are recorded in the `with` block.

    `find_author` is called each time versions are recorded.
    """
    token = _find_author.set(find_author)
    try:
        yield
    finally:
        _find_author.reset(token)


def _name_command() -> str | None:
    program, *arguments = sys.argv or [""]
    if Path(program).name in {"manage.py", "django-admin"} and arguments:
        return f"manage.py {arguments[0]}"
    return None


# The header of a task's message that names the author.
AUTHOR_HEADER = "outbox_author"

_tokens: dict[str, Token[FindAuthor | None]] = {}


def connect_celery_signals() -> None:
    """Make the sender of a Celery task the author of the versions that the task records.

    If the sender is not known, the author is the text `task` followed by the name of the task.
    """
    from celery import signals

    signals.before_task_publish.connect(_add_author_header, dispatch_uid="outbox.recording.author")
    signals.task_prerun.connect(_set_task_author, dispatch_uid="outbox.recording.author")
    signals.task_postrun.connect(_reset_task_author, dispatch_uid="outbox.recording.author")


def _add_author_header(headers: dict[str, Any], **_: Any) -> None:
    headers[AUTHOR_HEADER] = get_current_author()


def _set_task_author(task_id: str, task: Any, **_: Any) -> None:
    # A task that runs in the calling process has no header, and keeps the current author.
    name = task.request.get(AUTHOR_HEADER) or get_current_author() or f"task {task.name}"
    _tokens[task_id] = _find_author.set(lambda: name)


def _reset_task_author(task_id: str, **_: Any) -> None:
    token = _tokens.pop(task_id, None)
    if token is not None:
        _find_author.reset(token)
