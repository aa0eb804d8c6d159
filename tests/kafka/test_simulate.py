"""`annals simulate` against brokers: every message arrives, in order, as the seed says."""

import io
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition
from django.core.management import call_command
from pytest_django import Settings

from annals.demo.simulator import stream
from annals.embedded.broker import Broker, Daemon
from history.entities import ENTITIES
from ingest.source.producer import Producer
from tests.consuming import until
from tests.kafka import brokers
from tests.shape import shaped

pytestmark = pytest.mark.kafka
ROOT = Path(__file__).resolve().parents[2]
TOPICS = [topic for entity in ENTITIES for topic in entity.topics]


def simulate(*options: str) -> dict[str, Any]:
    """Run the command in this process; gives its summary line."""
    out = io.StringIO()
    call_command("simulate", *options, "--json", stdout=out)
    summary: dict[str, Any] = shaped("simulate", out.getvalue())
    return summary


def read(broker: Daemon, count: int) -> dict[bytes, list[bytes]]:
    """The values by key, in the order of their partitions. A client that gets nothing for long,
    although there is more, is replaced: librdkafka may fetch a partition no more."""
    found: dict[tuple[str, int], list[Message]] = defaultdict(list)
    deadline = time.monotonic() + 120
    while (left := count - sum(map(len, found.values()))) and time.monotonic() < deadline:
        _read_on(broker, left, found)
    assert left == 0
    values = defaultdict(list)
    for messages in found.values():
        for message in messages:
            values[bytes(message.key() or b"")].append(bytes(message.value() or b""))
    return values


def _read_on(broker: Daemon, left: int, found: dict[tuple[str, int], list[Message]]) -> None:
    """Read what follows, until nothing comes for a while."""
    consumer = Consumer(broker.client() | {"group.id": "test"})
    there = consumer.list_topics(timeout=20).topics
    # Without joining a group, which takes the embedded broker seconds.
    consumer.assign(
        [
            TopicPartition(name, partition, _next(found[name, partition]))
            for name in TOPICS
            for partition in there[name].partitions
        ]
    )
    came = time.monotonic()
    while left and time.monotonic() < came + 15:
        for message in consumer.consume(left, 0.5):
            assert message.error() is None
            found[str(message.topic()), int(message.partition() or 0)].append(message)
            left, came = left - 1, time.monotonic()
    consumer.close()


def _next(read: list[Message]) -> int:
    return int(read[-1].offset() or 0) + 1 if read else OFFSET_BEGINNING


def test_what_was_sent_is_there_byte_for_byte(broker: Daemon, settings: Settings) -> None:
    settings.KAFKA = broker.client()
    summary = simulate("--rps", "0", "--applications", "200", "--seed", "11")
    assert summary["delivered"] == summary["messages"] > 1_500
    assert summary["failed"] == 0
    expected = defaultdict(list)
    start = datetime.fromisoformat(summary["start"])
    step, together = timedelta(seconds=summary["step"]), summary["sideBySide"]
    for message in stream(11, start, applications=200, step=step, side_by_side=together):
        expected[message.key].append(message.value)
    assert read(broker, summary["messages"]) == expected


@pytest.mark.one_broker
def test_all_ten_topics_are_made_where_missing(broker: Daemon, settings: Settings) -> None:
    settings.KAFKA = broker.client()
    brokers.create(broker, TOPICS[:1], partitions=1)
    simulate("--messages", "10", "--rps", "0", "--topics-partitions", "4")
    found = brokers.admin(broker).list_topics(timeout=20).topics
    assert {topic: len(found[topic].partitions) for topic in TOPICS} == {
        topic: 1 if topic == TOPICS[0] else 4 for topic in TOPICS
    }


def test_sigterm_ends_it_with_everything_delivered(embedded: Broker) -> None:
    with _process(embedded, "--rps", "300", "--json") as running:
        _until_produced(embedded)
        running.send_signal(signal.SIGTERM)
        out, errors = running.communicate(timeout=20)
    assert running.returncode == 0, errors
    summary = shaped("simulate", out)
    assert summary["delivered"] == summary["messages"] > 0
    assert sum(map(len, read(embedded, summary["messages"]).values())) == summary["messages"]


def test_a_broker_that_is_gone_is_said(embedded: Broker, settings: Settings) -> None:
    settings.KAFKA = embedded.client()
    producer = Producer(embedded.client() | {"message.timeout.ms": 500})
    producer.create_topics(TOPICS[:1], 1)
    embedded.kill()
    producer.send(TOPICS[0], b"key", b"value")
    assert producer.flush(20) == 0
    assert (producer.sent, producer.delivered, producer.failed) == (1, 0, 1)
    assert producer.first_error


def _process(broker: Broker, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "manage.py", "simulate", *options],
        cwd=ROOT,
        env=os.environ | {"KAFKA_BOOTSTRAP_SERVERS": broker.client()["bootstrap.servers"]},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _until_produced(broker: Broker) -> None:
    until(lambda: set(TOPICS) <= set(brokers.listed(brokers.admin(broker))), "no topics")
    read(broker, 20)
