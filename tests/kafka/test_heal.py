"""`annals gaps heal` requests missing versions through Kafka, and they close gaps on arrival."""

import json
import subprocess
import sys
from typing import Any

import psycopg
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from annals.embedded.broker import KafkaServer
from tests.command_shapes import parse_shaped
from tests.consuming import (
    OWNER_URL,
    ROOT,
    ConsumerStarter,
    ProductDatabase,
    produce_messages,
    run_command,
    wait_until,
)
from tests.messages import TOPIC, make_value
from tests.processes import consumers, database, server

pytestmark = pytest.mark.kafka
__all__ = ["consumers", "database", "server"]
REQUESTS = "annals.gaps"
WAITS = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ 'asked_at = now'"


def produce_versions(consumers: ConsumerStarter, broker: KafkaServer, *versions: int) -> None:
    produce_messages(
        broker.make_client_config(), *((TOPIC, make_value(id="A1", version=n)) for n in versions)
    )
    consumers.consume_to_end("--topics", TOPIC)


def find_open_gaps(consumers: ConsumerStarter, database: ProductDatabase) -> list[tuple[int, int]]:
    """Run `gaps`, and return the open version gaps."""
    database.execute("SELECT pg_stat_force_next_flush()")
    owner = consumers.env | {"DATABASE_URL": consumers.env[OWNER_URL]}
    process = run_command(owner, "gaps", "--json")
    assert process.returncode == 0, process.stderr
    rows = database.query("SELECT first, last FROM version_gap WHERE closed_at IS NULL ORDER BY 1")
    return [(row["first"], row["last"]) for row in rows]


def run_heal(
    consumers: ConsumerStarter, *words: str, **env: str
) -> subprocess.CompletedProcess[str]:
    return run_command(consumers.env | env, "gaps", "heal", "--json", *words)


def count_requested_versions(consumers: ConsumerStarter, *words: str) -> int:
    """Run `gaps heal`, and return how many versions it requests."""
    process = run_heal(consumers, *words)
    assert process.returncode == 0, process.stderr
    return int(parse_shaped("gaps heal", process.stdout)["versions"])


def read_requests(broker: KafkaServer) -> list[tuple[bytes, dict[str, Any]]]:
    """Return key and value of each request in the topic."""
    client = Consumer(
        {**broker.make_client_config(), "group.id": "none", "enable.partition.eof": True}
    )
    client.assign([TopicPartition(REQUESTS, 0, OFFSET_BEGINNING)])
    results = []
    try:
        while (message := client.poll(20)) is not None and message.error() is None:
            results.append((message.key() or b"", json.loads(message.value() or b"")))
    finally:
        client.close()
    return results


def test_missing_versions_are_requested_once_and_version_gap_is_closed_when_they_arrive(
    consumers: ConsumerStarter, database: ProductDatabase, broker: KafkaServer
) -> None:
    produce_versions(consumers, broker, 0, 1, 4, 9)
    assert find_open_gaps(consumers, database) == [(2, 3), (5, 8)]
    assert count_requested_versions(consumers, "--dry-run") == 6
    assert count_requested_versions(consumers) == 6
    kind = {"kind": "product-instance", "id": "A1"}
    expected = [(b"A1", kind | {"from": 2, "to": 3}), (b"A1", kind | {"from": 5, "to": 8})]
    assert read_requests(broker) == expected
    assert count_requested_versions(consumers) == 0
    # Versions that arrive close their part of a gap. The rest of the gap is not requested again.
    produce_versions(consumers, broker, 2, 3, 7)
    assert find_open_gaps(consumers, database) == [(5, 6), (8, 8)]
    assert count_requested_versions(consumers) == 0
    closed = database.query("SELECT * FROM version_gap WHERE closed_at IS NOT NULL ORDER BY first")
    assert [(row["first"], row["last"], row["outcome"]) for row in closed] == [
        (2, 3, "arrived"),
        (7, 7, "arrived"),
    ]
    assert all(row["asked_at"] for row in closed)
    database.execute("UPDATE version_gap SET asked_at = now() - interval '25 hours'")
    assert count_requested_versions(consumers, "--limit", "1") == 2
    assert count_requested_versions(consumers, "--again") == 3
    assert len(read_requests(broker)) == 5


@pytest.mark.one_broker
def test_heal_does_not_request_versions_in_quarantine(
    consumers: ConsumerStarter, database: ProductDatabase, broker: KafkaServer
) -> None:
    bad = make_value(id="A1", version=2, updatedAt="never")
    produce_messages(broker.make_client_config(), (TOPIC, bad))
    produce_versions(consumers, broker, 0, 4)
    assert find_open_gaps(consumers, database) == [(1, 3)]
    assert count_requested_versions(consumers) == 2
    results = [(value["from"], value["to"]) for _, value in read_requests(broker)]
    assert results == [(1, 1), (3, 3)]


@pytest.mark.one_broker
def test_version_gap_is_requested_again_after_heal_was_killed_before_noting_the_request(
    consumers: ConsumerStarter, database: ProductDatabase, broker: KafkaServer
) -> None:
    produce_versions(consumers, broker, 0, 2)
    assert find_open_gaps(consumers, database) == [(1, 1)]
    with psycopg.connect(database.url) as second_connection:
        second_connection.execute("SELECT FROM version_gap FOR UPDATE")
        words = (sys.executable, "manage.py", "gaps", "heal")
        killed = subprocess.Popen(words, cwd=ROOT, env=consumers.env)
        wait_until(lambda: database.query(WAITS), "it never came to the note")
        killed.kill()
        killed.wait()
        # A session that waits for a lock does not notice that its process was killed.
        database.execute(WAITS.replace("SELECT", "SELECT pg_terminate_backend(pid)"))
    assert count_requested_versions(consumers) == 1
    assert len(read_requests(broker)) == 2
    assert count_requested_versions(consumers) == 0


@pytest.mark.one_broker
def test_missing_version_is_requested_by_next_heal_when_no_broker_answered_first_heal(
    consumers: ConsumerStarter, database: ProductDatabase, broker: KafkaServer
) -> None:
    produce_versions(consumers, broker, 0, 2)
    assert find_open_gaps(consumers, database) == [(1, 1)]
    process = run_heal(consumers, KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:1")
    assert process.returncode == 2
    assert "no broker listens at 127.0.0.1:1" in process.stderr
    assert count_requested_versions(consumers) == 1
