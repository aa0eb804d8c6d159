"""The inbox for the tests: messages, a worker in this process, and consumers as processes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outbox.inbox import Message, queue
from outbox.inbox.conf import InboxConf
from outbox.inbox.message import handlers
from outbox.inbox.models import Waiting
from outbox.inbox.worker import Worker
from tests.outbox import processes, settings
from tests.outbox.processes import Process
from tests.outbox.shop.inbox import EVENTS
from tests.outbox.shop.models import Effect

# Kafka itself takes no shorter session.
SESSION = {"session.timeout.ms": 6_000}
QUICK = {"RETRY_FIRST_SECONDS": 0.01, "RETRY_MOST_SECONDS": 0.02, "ATTEMPTS": 3}


def message(
    offset: int, key: str | None = "A", *, topic: str = EVENTS, id: str | None = None, **value: Any
) -> Message:
    """A message with this value as JSON; id: its idempotency key."""
    headers = () if id is None else (("idempotency-key", id.encode()),)
    raw = json.dumps({"n": offset, **value}).encode()
    return Message(topic, 0, offset, None if key is None else key.encode(), raw, headers)


def put(*messages: Message) -> dict[tuple[str, str], int]:
    """Store messages as one batch."""
    return dict(queue.store(messages, handlers(), "default"))


def worker(**changes: Any) -> Worker:
    """A worker for all handlers. changes: of settings.INBOX."""
    return Worker(InboxConf.read({**settings.INBOX, **QUICK, **changes}), "default", handlers())


def work(**changes: Any) -> Worker:
    """Process what is due now, with a new worker."""
    made = worker(**changes)
    while made.one():
        pass
    return made


def effects(handler: str = "shop") -> list[tuple[str, int]]:
    """Key and number, in the order of the commits."""
    found = Effect.objects.filter(handler=handler).order_by("id")
    return list(found.values_list("key", "n"))


def states() -> dict[int, str]:
    """By offset: the state of what is not processed."""
    return dict(Waiting.objects.order_by("id").values_list("offset", "state"))


def start(client: Mapping[str, Any], database: str, log: Path, **changes: Any) -> Process:
    """A consumer as a process of its own. client: settings for Kafka. changes: of
    settings.INBOX."""
    given = {"KAFKA": {**client, **SESSION}, **QUICK, **changes}
    return processes.start("inbox consume", database, log, INBOX_TEST_SETTINGS=given)
