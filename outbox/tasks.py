"""The author in tasks of Celery: who sent the task, or the task itself. Imported only if Celery is
installed."""

from __future__ import annotations

from contextvars import Token
from typing import Any

from celery import signals

from outbox import author
from outbox.author import Who

# A header of the task's message.
HEADER = "outbox_author"

_tokens: dict[str, Token[Who | None]] = {}


def connect() -> None:
    """Have tasks take the author with them."""
    signals.before_task_publish.connect(_sent, dispatch_uid="outbox.tasks")
    signals.task_prerun.connect(_begins, dispatch_uid="outbox.tasks")
    signals.task_postrun.connect(_ended, dispatch_uid="outbox.tasks")


def _sent(headers: dict[str, Any], **_: Any) -> None:
    headers[HEADER] = author.current()


def _begins(task_id: str, task: Any, **_: Any) -> None:
    # A task that runs where it was called has no message; its author is the present one.
    name = task.request.get(HEADER) or author.current() or f"task {task.name}"
    _tokens[task_id] = author.begin(lambda: name)


def _ended(task_id: str, **_: Any) -> None:
    token = _tokens.pop(task_id, None)
    if token is not None:
        author.end(token)
