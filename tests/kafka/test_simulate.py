"""`annals simulate` delivers messages to brokers. tests/unit/test_demo.py tests their contents."""

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

from annals.embedded.broker import EmbeddedBroker, KafkaServer
from history.kinds.entities import ENTITIES
from ingest.kafka.producer import KafkaProducer
from tests.command_shapes import parse_shaped
from tests.consuming import wait_until
from tests.kafka import brokers

pytestmark = pytest.mark.kafka
ROOT = Path(__file__).resolve().parents[2]
TOPICS = [topic for entity in ENTITIES for topic in entity.topics]


def run_simulate(*options: str) -> dict[str, Any]:
    """Run the command in this process, and return its summary line."""
    out = io.StringIO()
    call_command("simulate", *options, "--json", stdout=out)
    summary: dict[str, Any] = parse_shaped("simulate", out.getvalue())
    return summary


@pytest.mark.one_broker
def test_simulate_creates_missing_topics(broker: KafkaServer, settings: Settings) -> None:
    settings.KAFKA = broker.make_client_config()
    brokers.create_topics(broker, TOPICS[:1], partitions=1)
    summary = run_simulate("--messages", "10", "--rps", "0", "--topics-partitions", "4")
    assert (summary["delivered"], summary["failed"]) == (10, 0)
    results = brokers.make_admin_client(broker).list_topics(timeout=120).topics
    assert {topic: len(results[topic].partitions) for topic in TOPICS} == {
        topic: 1 if topic == TOPICS[0] else 4 for topic in TOPICS
    }


def test_simulate_waits_for_delivery_of_sent_messages_at_sigterm(embedded: EmbeddedBroker) -> None:
    with subprocess.Popen(
        [sys.executable, "manage.py", "simulate", "--rps", "300", "--json"],
        cwd=ROOT,
        env=os.environ | {"KAFKA_BOOTSTRAP_SERVERS": embedded.get_bootstrap_servers()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        wait_until(
            lambda: set(TOPICS) <= set(brokers.list_topics(brokers.make_admin_client(embedded))),
            "no topics",
        )
        time.sleep(1)  # some messages are sent
        running.send_signal(signal.SIGTERM)
        out, errors = running.communicate(timeout=120)
    assert running.returncode == 0, errors
    summary = parse_shaped("simulate", out)
    assert summary["delivered"] == summary["messages"] > 0


def test_simulator_counts_message_as_failed_when_broker_dies_before_delivery(
    embedded: EmbeddedBroker, settings: Settings
) -> None:
    settings.KAFKA = embedded.make_client_config()
    producer = KafkaProducer(embedded.make_client_config() | {"message.timeout.ms": 500})
    producer.create_topics(TOPICS[:1], 1)
    embedded.kill()
    producer.send(TOPICS[0], b"key", b"value")
    assert producer.flush(20) == 0
    assert (producer.sent, producer.delivered, producer.failed) == (1, 0, 1)
    assert producer.first_error
