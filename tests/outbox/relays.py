"""Helpers that run relays as processes or threads, and read the messages that they sent."""

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from django.db import connection

from annals.embedded.broker import KafkaServer
from outbox.conf import OutboxConf
from outbox.recording.message import IDEMPOTENCY_KEY
from outbox.relay.loop import RelayLoop
from tests import consuming
from tests.outbox import processes, settings
from tests.outbox.processes import Process

TOPIC = "top-storage.export.product-instance"
# The lease of a relay whose buckets others should take over soon.
LEASE = 2.0
# The lease of a relay that runs alone. After half of it the relay sends an unconfirmed version
# again, so it must be long on a busy machine.
LONG_LEASE = 30.0


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message in the topic."""

    key: str
    version: int
    idempotency_key: str
    value: bytes


def start_relay(broker: KafkaServer, database: str, log: Path, **changes: Any) -> Process:
    """Start a relay process.

    Args:
        changes: Changed keys of settings.OUTBOX.
    """
    setting = {"KAFKA": broker.make_client_config(), "LEASE_SECONDS": LEASE, **changes}
    return processes.start_command("outbox relay", database, log, OUTBOX_TEST_SETTINGS=setting)


def run_relay(broker: KafkaServer, **changes: Any) -> AbstractContextManager[RelayLoop]:
    """Run a relay in a thread, and stop the relay after the `with` block.

    Args:
        changes: Changed keys of settings.OUTBOX.
    """
    setting = {
        **settings.OUTBOX,
        "KAFKA": broker.make_client_config(),
        "LEASE_SECONDS": LONG_LEASE,
        **changes,
    }
    return processes.run_in_thread(RelayLoop(OutboxConf.from_setting(setting), "default"))


def _fetch_end(consumer: Consumer, place: TopicPartition) -> int:
    """Return the end offset of a partition, after waiting until a new topic has a leader."""
    deadline = time.monotonic() + 60
    while True:
        try:
            end: int = consumer.get_watermark_offsets(place, timeout=120)[1]
        except KafkaException as error:
            has_no_leader = error.args[0].code() == KafkaError.NOT_LEADER_FOR_PARTITION
            if not has_no_leader or time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return end


def read_sent(broker: KafkaServer, topic: str = TOPIC) -> list[SentMessage]:
    """Return all messages in the topic, ordered within each partition."""
    consumer = Consumer(
        {**broker.make_client_config(), "group.id": "none", "enable.auto.commit": False}
    )
    try:
        partitions = consumer.list_topics(topic, timeout=120).topics[topic].partitions
        ends = {
            number: _fetch_end(consumer, TopicPartition(topic, number)) for number in partitions
        }
        unread = {number: end for number, end in ends.items() if end}
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in unread])
        messages = []
        while unread:
            for message in consumer.consume(1000, 1.0):
                assert message.error() is None, message.error()
                number, offset = message.partition(), message.offset()
                assert number is not None
                assert offset is not None
                if offset >= unread.get(number, 0) - 1:
                    unread.pop(number, None)
                messages.append(_convert_message(message))
        return messages
    finally:
        consumer.close()


def select_rows(statement: str) -> list[tuple[Any, ...]]:
    """Return the rows of a statement in the service's database."""
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def count_waiting() -> int:
    """Return how many documents have unsent versions."""
    return len(select_rows("SELECT FROM outbox_document WHERE waiting_since IS NOT NULL"))


def list_shares() -> list[int]:
    """Return how many buckets each relay has, or [] while a bucket has no relay."""
    owners = Counter(owner for (owner,) in select_rows("SELECT owner FROM outbox_bucket"))
    return [] if None in owners else sorted(owners.values())


def wait_until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Wait until the condition holds; fail if it does not."""
    consuming.wait_until(condition, "it does not become true", seconds)


def check_sent(messages: list[SentMessage], documents: dict[str, int]) -> int:
    """Assert that the messages have all versions in order, and return how many are repeats.

    Args:
        documents: The newest version number of each document by id.
    """
    first: dict[str, list[int]] = defaultdict(list)
    values: dict[str, bytes] = {}
    for message in messages:
        if message.idempotency_key not in values:
            values[message.idempotency_key] = message.value
            first[message.key].append(message.version)
        assert values[message.idempotency_key] == message.value
    wrong = {
        id: numbers
        for id, numbers in first.items()
        if numbers != list(range(1, documents.get(id, 0) + 1))
    }
    assert wrong == {}
    assert set(first) == set(documents)
    return len(messages) - len(values)


def _convert_message(message: Any) -> SentMessage:
    value = message.value()
    headers = dict(message.headers() or [])
    return SentMessage(
        message.key().decode(),
        json.loads(value)["version"],
        headers[IDEMPOTENCY_KEY].decode(),
        value,
    )
