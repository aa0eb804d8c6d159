"""Relays for the tests, as processes and as threads; and what they sent."""

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

from annals.embedded.broker import Daemon
from outbox.conf import Conf
from outbox.message import IDEMPOTENCY_KEY
from outbox.relay.loop import RelayLoop
from tests import consuming
from tests.outbox import processes, settings
from tests.outbox.processes import Process

TOPIC = "top-storage.export.product-instance"
LEASE = 2.0


@dataclass(frozen=True, slots=True)
class Sent:
    """A message in the topic."""

    key: str
    version: int
    idempotency_key: str
    value: bytes


def start(broker: Daemon, database: str, log: Path, **changes: Any) -> Process:
    """A relay as a process of its own. changes: of settings.OUTBOX."""
    given = {"KAFKA": broker.client(), "LEASE_SECONDS": LEASE, **changes}
    return processes.start("outbox relay", database, log, OUTBOX_TEST_SETTINGS=given)


def thread(broker: Daemon, **changes: Any) -> AbstractContextManager[RelayLoop]:
    """A relay in a thread of this process, stopped at the end."""
    given = {**settings.OUTBOX, "KAFKA": broker.client(), "LEASE_SECONDS": LEASE, **changes}
    return processes.in_thread(RelayLoop(Conf.read(given), "default"))


def _end(consumer: Consumer, place: TopicPartition) -> int:
    """The offset after the last message. A topic that was just created has no leader yet."""
    deadline = time.monotonic() + 60
    while True:
        try:
            end: int = consumer.get_watermark_offsets(place, timeout=20)[1]
        except KafkaException as error:
            none_yet = error.args[0].code() == KafkaError.NOT_LEADER_FOR_PARTITION
            if not none_yet or time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return end


def sent(broker: Daemon, topic: str = TOPIC) -> list[Sent]:
    """All messages in the topic, by partition in their order."""
    consumer = Consumer({**broker.client(), "group.id": "none", "enable.auto.commit": False})
    try:
        known = consumer.list_topics(topic, timeout=20).topics[topic].partitions
        ends = {number: _end(consumer, TopicPartition(topic, number)) for number in known}
        left = {number: end for number, end in ends.items() if end}
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in left])
        found = []
        while left:
            for message in consumer.consume(1000, 1.0):
                assert message.error() is None, message.error()
                number, offset = message.partition(), message.offset()
                assert number is not None
                assert offset is not None
                if offset >= left.get(number, 0) - 1:
                    left.pop(number, None)
                found.append(_sent(message))
        return found
    finally:
        consumer.close()


def rows(statement: str) -> list[tuple[Any, ...]]:
    """What a statement finds in the service's database."""
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def waiting() -> int:
    """How many documents are not sent completely."""
    return len(rows("SELECT FROM outbox_document WHERE waiting_since IS NOT NULL"))


def shares() -> list[int]:
    """How many buckets each relay has; empty while a bucket has none."""
    owners = Counter(owner for (owner,) in rows("SELECT owner FROM outbox_bucket"))
    return [] if None in owners else sorted(owners.values())


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Wait for a condition; fails if it does not become true."""
    consuming.until(condition, "it does not become true", seconds)


def check(found: list[Sent], documents: dict[str, int]) -> int:
    """Every version of the documents (newest version by id) is there, in order, and what came
    again is the same message. Returns how many came again."""
    first: dict[str, list[int]] = defaultdict(list)
    values: dict[str, bytes] = {}
    for each in found:
        if each.idempotency_key not in values:
            values[each.idempotency_key] = each.value
            first[each.key].append(each.version)
        assert values[each.idempotency_key] == each.value
    wrong = {
        id: numbers
        for id, numbers in first.items()
        if numbers != list(range(1, documents.get(id, 0) + 1))
    }
    assert wrong == {}
    assert set(first) == set(documents)
    return len(found) - len(values)


def _sent(message: Any) -> Sent:
    value = message.value()
    headers = dict(message.headers() or [])
    return Sent(
        message.key().decode(),
        json.loads(value)["version"],
        headers[IDEMPOTENCY_KEY].decode(),
        value,
    )
