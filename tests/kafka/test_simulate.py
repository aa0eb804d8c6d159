"""`annals simulate` against brokers: what it sends is delivered; tests/unit/test_demo.py has what
that is."""

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from pytest_django import Settings

from annals.embedded.broker import Broker, Daemon
from history.entities import ENTITIES
from ingest.source.producer import KafkaProducer
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


@pytest.mark.one_broker
def test_all_ten_topics_are_made_where_missing(broker: Daemon, settings: Settings) -> None:
    settings.KAFKA = broker.client()
    brokers.create(broker, TOPICS[:1], partitions=1)
    summary = simulate("--messages", "10", "--rps", "0", "--topics-partitions", "4")
    assert (summary["delivered"], summary["failed"]) == (10, 0)
    found = brokers.admin(broker).list_topics(timeout=20).topics
    assert {topic: len(found[topic].partitions) for topic in TOPICS} == {
        topic: 1 if topic == TOPICS[0] else 4 for topic in TOPICS
    }


def test_sigterm_ends_it_with_everything_delivered(embedded: Broker) -> None:
    with subprocess.Popen(
        [sys.executable, "manage.py", "simulate", "--rps", "300", "--json"],
        cwd=ROOT, env=os.environ | {"KAFKA_BOOTSTRAP_SERVERS": embedded.bootstrap_servers()},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as running:  # fmt: skip
        until(lambda: set(TOPICS) <= set(brokers.listed(brokers.admin(embedded))), "no topics")
        time.sleep(1)  # some messages are sent
        running.send_signal(signal.SIGTERM)
        out, errors = running.communicate(timeout=20)
    assert running.returncode == 0, errors
    summary = shaped("simulate", out)
    assert summary["delivered"] == summary["messages"] > 0


def test_a_broker_that_is_gone_is_said(embedded: Broker, settings: Settings) -> None:
    settings.KAFKA = embedded.client()
    producer = KafkaProducer(embedded.client() | {"message.timeout.ms": 500})
    producer.create_topics(TOPICS[:1], 1)
    embedded.kill()
    producer.send(TOPICS[0], b"key", b"value")
    assert producer.flush(20) == 0
    assert (producer.sent, producer.delivered, producer.failed) == (1, 0, 1)
    assert producer.first_error
