"""`annals gaps heal` asks for missing versions in Kafka, and the gaps close as these arrive."""

import json
import subprocess
import sys
from typing import Any

import psycopg
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from annals.embedded.broker import Daemon
from tests.consuming import OWNER_URL, ROOT, Consumers, Database, command, send, until
from tests.messages import TOPIC, value
from tests.processes import consumers, database, server
from tests.shape import shaped

pytestmark = pytest.mark.kafka
__all__ = ["consumers", "database", "server"]
REQUESTS = "annals.gaps"
WAITS = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ 'asked_at = now'"


def arrive(consumers: Consumers, broker: Daemon, *versions: int) -> None:
    send(broker.client(), *((TOPIC, value(id="A1", version=n)) for n in versions))
    consumers.drain("--topics", TOPIC)


def find(consumers: Consumers, database: Database) -> list[tuple[int, int]]:
    """The open gaps after a run of `gaps`."""
    database.execute("SELECT pg_stat_force_next_flush()")
    owner = consumers.env | {"DATABASE_URL": consumers.env[OWNER_URL]}
    done = command(owner, "gaps", "--json")
    assert done.returncode == 0, done.stderr
    rows = database.query("SELECT first, last FROM version_gap WHERE closed_at IS NULL ORDER BY 1")
    return [(row["first"], row["last"]) for row in rows]


def heal(consumers: Consumers, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return command(consumers.env | env, "gaps", "heal", "--json", *words)


def asked(consumers: Consumers, *words: str) -> int:
    """How many versions a run asks for."""
    done = heal(consumers, *words)
    assert done.returncode == 0, done.stderr
    return int(shaped("gaps heal", done.stdout)["versions"])


def requests(broker: Daemon) -> list[tuple[bytes, dict[str, Any]]]:
    """Key and value of each request in the topic."""
    client = Consumer({**broker.client(), "group.id": "none", "enable.partition.eof": True})
    client.assign([TopicPartition(REQUESTS, 0, OFFSET_BEGINNING)])
    found = []
    try:
        while (message := client.poll(20)) is not None and message.error() is None:
            found.append((message.key() or b"", json.loads(message.value() or b"")))
    finally:
        client.close()
    return found


def test_it_asks_once_and_the_gap_closes_as_the_versions_arrive(
    consumers: Consumers, database: Database, broker: Daemon
) -> None:
    arrive(consumers, broker, 0, 1, 4, 9)
    assert find(consumers, database) == [(2, 3), (5, 8)]
    assert asked(consumers, "--dry-run") == 6
    assert asked(consumers) == 6
    kind = {"kind": "product-instance", "id": "A1"}
    wanted = [(b"A1", kind | {"from": 2, "to": 3}), (b"A1", kind | {"from": 5, "to": 8})]
    assert requests(broker) == wanted
    assert asked(consumers) == 0
    # One that came in part is not asked for again; what came closes.
    arrive(consumers, broker, 2, 3, 7)
    assert find(consumers, database) == [(5, 6), (8, 8)]
    assert asked(consumers) == 0
    closed = database.query("SELECT * FROM version_gap WHERE closed_at IS NOT NULL ORDER BY first")
    assert [(row["first"], row["last"], row["outcome"]) for row in closed] == [
        (2, 3, "arrived"), (7, 7, "arrived"),
    ]  # fmt: skip
    assert all(row["asked_at"] for row in closed)
    database.execute("UPDATE version_gap SET asked_at = now() - interval '25 hours'")
    assert asked(consumers, "--limit", "1") == 2
    assert asked(consumers, "--again") == 3
    assert len(requests(broker)) == 5


@pytest.mark.one_broker
def test_what_is_in_quarantine_is_not_asked_for(
    consumers: Consumers, database: Database, broker: Daemon
) -> None:
    bad = value(id="A1", version=2, updatedAt="never")
    send(broker.client(), (TOPIC, bad))
    arrive(consumers, broker, 0, 4)
    assert find(consumers, database) == [(1, 3)]
    assert asked(consumers) == 2
    found = [(value["from"], value["to"]) for _, value in requests(broker)]
    assert found == [(1, 1), (3, 3)]


@pytest.mark.one_broker
def test_a_run_that_is_killed_before_it_notes_what_it_asked_for_asks_again(
    consumers: Consumers, database: Database, broker: Daemon
) -> None:
    arrive(consumers, broker, 0, 2)
    assert find(consumers, database) == [(1, 1)]
    with psycopg.connect(database.url) as other:
        other.execute("SELECT FROM version_gap FOR UPDATE")
        words = (sys.executable, "manage.py", "gaps", "heal")
        killed = subprocess.Popen(words, cwd=ROOT, env=consumers.env)
        until(lambda: database.query(WAITS), "it never came to the note")
        killed.kill()
        killed.wait()
        # A session that waits for a lock does not notice that its process is gone.
        database.execute(WAITS.replace("SELECT", "SELECT pg_terminate_backend(pid)"))
    assert asked(consumers) == 1
    assert len(requests(broker)) == 2
    assert asked(consumers) == 0


@pytest.mark.one_broker
def test_without_an_answer_of_kafka_the_next_run_asks(
    consumers: Consumers, database: Database, broker: Daemon
) -> None:
    arrive(consumers, broker, 0, 2)
    assert find(consumers, database) == [(1, 1)]
    done = heal(consumers, KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:1")
    assert done.returncode == 2
    assert "no broker listens at 127.0.0.1:1" in done.stderr
    assert asked(consumers) == 1
