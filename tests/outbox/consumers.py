"""The inbox for the tests: messages, a worker in this process, and consumers as processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from outbox.inbox import Message, store
from outbox.inbox.conf import read
from outbox.inbox.models import Waiting
from outbox.inbox.registry import handlers
from outbox.inbox.worker import Worker
from tests.outbox import settings
from tests.outbox.relays import ROOT
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
    return dict(store.store(messages, handlers(), "default"))


def worker(**changes: Any) -> Worker:
    """A worker for all handlers. changes: of settings.INBOX."""
    known = handlers()
    topics = {topic for each in known.values() for topic in each.topics}
    return Worker(read({**settings.INBOX, **QUICK, **changes}), "default", known, topics)


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


def start(
    client: Mapping[str, Any], database: str, log: Path, **changes: Any
) -> subprocess.Popen[bytes]:
    """A consumer as a process of its own. client: settings for Kafka. changes: of
    settings.INBOX."""
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.outbox.settings",
        "OUTBOX_TEST_DATABASE": database,
        "INBOX_TEST_SETTINGS": json.dumps({"KAFKA": {**client, **SESSION}, **QUICK, **changes}),
    }
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "django", "inbox", "consume"],
            env=environment,
            cwd=ROOT,
            stdout=output,
            stderr=output,
        )


@contextmanager
def kept(running: list[subprocess.Popen[bytes]]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that are killed at the end, whatever became of them."""
    try:
        yield running
    finally:
        for process in running:
            process.send_signal(signal.SIGKILL)
        for process in running:
            process.wait()
