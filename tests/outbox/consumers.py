"""Helpers for tests of the inbox: messages, a processor in this process, and consumer processes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outbox.inbox import Message, queue
from outbox.inbox.conf import InboxConf
from outbox.inbox.message import list_handlers
from outbox.inbox.models import Waiting
from outbox.inbox.worker import MessageProcessor
from tests.outbox import processes, settings
from tests.outbox.processes import Process
from tests.outbox.shop.inbox import EVENTS
from tests.outbox.shop.models import Effect

# Apache Kafka refuses a shorter session.
SESSION = {"session.timeout.ms": 6_000}
QUICK = {"RETRY_FIRST_SECONDS": 0.01, "RETRY_MOST_SECONDS": 0.02, "ATTEMPTS": 3}


def make_message(
    offset: int, key: str | None = "A", *, topic: str = EVENTS, id: str | None = None, **value: Any
) -> Message:
    """Return a message with this value as JSON.

    Args:
        id: The idempotency key of the message.
    """
    headers = () if id is None else (("idempotency-key", id.encode()),)
    raw = json.dumps({"n": offset, **value}).encode()
    return Message(topic, 0, offset, None if key is None else key.encode(), raw, headers)


def store_messages(*messages: Message) -> dict[tuple[str, str], int]:
    """Store messages as one batch."""
    return dict(queue.store_messages(messages, list_handlers(), "default"))


def make_processor(**changes: Any) -> MessageProcessor:
    """Return a MessageProcessor for all handlers of the test service.

    Args:
        changes: Changed keys of settings.INBOX.
    """
    return MessageProcessor(
        InboxConf.from_setting({**settings.INBOX, **QUICK, **changes}), "default", list_handlers()
    )


def process_due(**changes: Any) -> MessageProcessor:
    """Process the messages that are due now with a new MessageProcessor, and return it."""
    processor = make_processor(**changes)
    while processor.process_next():
        pass
    return processor


def list_effects(handler: str = "shop") -> list[tuple[str, int]]:
    """Return key and field `n` of the messages that the handler processed, in commit order."""
    rows = Effect.objects.filter(handler=handler).order_by("id")
    return list(rows.values_list("key", "n"))


def map_states() -> dict[int, str]:
    """Return the state of each unprocessed message by its offset."""
    return dict(Waiting.objects.order_by("id").values_list("offset", "state"))


def start_consumer(client: Mapping[str, Any], database: str, log: Path, **changes: Any) -> Process:
    """Start a consumer process.

    Args:
        client: The settings of the Kafka client.
        changes: Changed keys of settings.INBOX.
    """
    variables = {"KAFKA": {**client, **SESSION}, **QUICK, **changes}
    return processes.start_command("inbox consume", database, log, INBOX_TEST_SETTINGS=variables)
