"""What only Apache Kafka can do: be killed and keep its data, keep strangers out, mark
transactions, delete messages before they are read."""

import json
import time
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from annals.embedded.process import free_ports
from tests.apache.broker import USER, Apache
from tests.consuming import Consumers, Database, Feed, complete, environment, send, until
from tests.kafka import brokers
from tests.messages import TOPIC, value
from tests.processes import consumers, database, server

pytestmark = [pytest.mark.kafka, pytest.mark.parametrize("broker", ["apache"], indirect=True)]
__all__ = ["consumers", "database", "server"]


@pytest.fixture
def feed(broker: Apache, topics: list[str]) -> Feed:
    # Without it the producer itself sends twice what a killed broker did not acknowledge.
    return Feed({**broker.client(), "enable.idempotence": True})


def test_killed_and_started_again(
    consumers: Consumers, database: Database, feed: Feed, broker: Apache
) -> None:
    running = consumers.start()
    running.until_reading()
    with feed.pouring(300):
        for end in (broker.kill, broker.stop):
            before = database.read()
            until(lambda before=before: database.read() > before + 100, running.said)  # type: ignore[misc]
            end()
            time.sleep(1)
            broker.start()
        before = database.read()
        until(lambda: database.read() > before + 100, running.said)
    until(lambda: database.read() == feed.produced.total(), running.said)
    running.terminate()
    complete(consumers, database, feed)


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_over_tls_and_with_a_password(
    database: Database, feed: Feed, broker: Apache, tmp_path: Path, protocol: str
) -> None:
    feed.send(200)
    secured = Consumers(environment(broker, database, broker.client(protocol)), tmp_path)
    try:
        running = secured.start("--until-idle", "2", ANNALS_LOG_LEVEL="DEBUG")
        assert running.end()["stored"] == 200
        complete(secured, database, feed)
        password = (broker.home / "password").read_text()
        assert password not in running.said()
    finally:
        secured.stop()


def test_a_wrong_password_ends_the_start_and_is_not_shown(
    database: Database, topics: list[str], broker: Apache, tmp_path: Path
) -> None:
    client = {**broker.client("SASL_PLAINTEXT"), "sasl.password": "mistaken-password"}
    refused = Consumers(environment(broker, database, client), tmp_path)
    try:
        running = refused.start()
        assert running.process.wait(60) == 1
        said = running.said()
        place = client["bootstrap.servers"]
        assert f"annals: Kafka at {place} refuses the login: correct ANNALS_KAFKA_SASL" in said
        assert "mistaken-password" not in said
        assert "Traceback" not in said
    finally:
        refused.stop()


def change_password(broker: Apache, password: str) -> None:
    """Of the login of the SASL listeners. Connections that are open go on."""
    change = UserScramCredentialUpsertion(
        USER, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192), password.encode()
    )
    client = AdminClient(broker.client())  # lives until the answer is there
    for future in client.alter_user_scram_credentials([change]).values():
        future.result(20)


def test_a_changed_password_is_waited_for_and_said(
    database: Database, feed: Feed, broker: Apache, tmp_path: Path
) -> None:
    password = (broker.home / "password").read_text()
    secured = Consumers(environment(broker, database, broker.client("SASL_PLAINTEXT")), tmp_path)
    [port] = free_ports([None])
    address = f"http://127.0.0.1:{port}/metrics"

    def refused() -> bool:
        with urlopen(address, timeout=5) as answer:
            return b'annals_login_refused{server="kafka"} 1.0' in answer.read()

    try:
        running = secured.start("--metrics-port", str(port))
        running.until_reading()
        feed.send(50)
        until(lambda: database.read() == 50, running.said)
        assert not refused()
        change_password(broker, "another-password")
        broker.stop()
        broker.start()
        until(refused, running.said)
        assert running.process.poll() is None
        change_password(broker, password)
        feed.send(50)
        until(lambda: database.read() == 100, running.said)
        until(lambda: not refused(), running.said)
        said = running.said()
        assert "refuses the login" in said
        assert "Nothing is lost; trying again" in said
        assert password not in said
        running.terminate()
    finally:
        change_password(broker, password)
        secured.stop()


def test_marks_of_transactions_are_holes_and_no_loss(
    consumers: Consumers, database: Database, broker: Apache
) -> None:
    """What was aborted is not read; the marks themselves take offsets too, also at the end: the lag
    is nothing. The wait is the one that docs/kafka.md recommends."""
    send(broker.client(), (TOPIC, value(id="first")))
    producer = Producer({**broker.client(), "transactional.id": "upstream"})
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        for part in range(5):
            body = value(id="kept" if number % 2 else "dropped", version=number * 10 + part)
            producer.produce(TOPIC, body, partition=0)
        producer.flush()
        (producer.commit_transaction if number % 2 else producer.abort_transaction)(30)
    consumers.env["ANNALS_KAFKA_FETCH_WAIT_MAX_MS"] = "500"
    summary = consumers.drain("--topics", TOPIC)
    assert summary["stored"] == 16
    ids = database.query("SELECT DISTINCT id FROM product_instance_aud ORDER BY id")
    assert [row["id"] for row in ids] == ["first", "kept"]
    figures = consumers.ledger()
    assert figures["ok"]
    assert figures["totals"]["skipped"] == 3 * 5 + 6
    assert (figures["totals"]["lost"], figures["totals"]["lag"]) == (0, 0)
    assert database.count("ingest_gap") == 0


def test_what_the_broker_deleted_unread_is_named_as_lost(
    consumers: Consumers, database: Database, broker: Apache
) -> None:
    send(broker.client(), *((TOPIC, value(id="a", version=n)) for n in range(10)))
    assert consumers.drain("--topics", TOPIC)["read"] == 10
    send(broker.client(), *((TOPIC, value(id="b", version=n)) for n in range(20)))
    doomed = TopicPartition(TOPIC, 0, 25)
    admin = brokers.admin(broker)
    for future in admin.delete_records([doomed]).values():
        future.result(20)
    assert consumers.drain("--topics", TOPIC)["read"] == 5
    done = consumers.manage("ledger", "--json")
    assert done.returncode == 1
    figures = json.loads(done.stdout)
    assert figures["totals"]["lost"] == 15
    assert "15 messages were deleted by the broker before they were read" in figures["faults"][0]
