"""Tests of consumers that need Apache Kafka instead of the embedded broker.

Only Apache Kafka keeps its data after a kill, checks passwords, marks transactions, and deletes
messages before they are read.
"""

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

from annals.embedded.process import choose_free_ports
from tests.apache.broker import USER, Apache
from tests.consuming import (
    ConsumerStarter,
    MessageFeed,
    ProductDatabase,
    assert_complete,
    make_environment,
    produce_messages,
    wait_until,
)
from tests.kafka import brokers
from tests.messages import TOPIC, make_value
from tests.processes import consumers, database, server

pytestmark = [pytest.mark.kafka, pytest.mark.parametrize("broker", ["apache"], indirect=True)]
__all__ = ["consumers", "database", "server"]


@pytest.fixture
def feed_messages(broker: Apache, topics: list[str]) -> MessageFeed:
    # Without this setting the producer sends a message twice if a killed broker did not
    # acknowledge it.
    return MessageFeed({**broker.make_client_config(), "enable.idempotence": True})


def test_consumer_survives_broker_restart(
    consumers: ConsumerStarter,
    database: ProductDatabase,
    feed_messages: MessageFeed,
    broker: Apache,
) -> None:
    running = consumers.start_consumer()
    running.wait_until_reading()
    with feed_messages.send_in_background(300):
        for end in (broker.kill, broker.stop):
            before = database.count_read()
            wait_until(lambda before=before: database.count_read() > before + 100, running.read_log)  # type: ignore[misc]
            end()
            time.sleep(1)
            broker.start()
        before = database.count_read()
        wait_until(lambda: database.count_read() > before + 100, running.read_log)
    wait_until(lambda: database.count_read() == feed_messages.produced.total(), running.read_log)
    running.terminate()
    assert_complete(consumers, database, feed_messages)


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_consumer_reads_through_tls_and_password_authentication(
    database: ProductDatabase,
    feed_messages: MessageFeed,
    broker: Apache,
    tmp_path: Path,
    protocol: str,
) -> None:
    feed_messages.send_many(200)
    secured = ConsumerStarter(
        make_environment(broker, database, broker.make_client_config(protocol)), tmp_path
    )
    try:
        running = secured.start_consumer("--until-idle", "2", ANNALS_LOG_LEVEL="DEBUG")
        assert running.wait_for_end()["stored"] == 200
        assert_complete(secured, database, feed_messages)
        password = (broker.home / "password").read_text()
        assert password not in running.read_log()
    finally:
        secured.kill_all()


def test_consumer_with_wrong_kafka_password_exits_and_does_not_log_the_password(
    database: ProductDatabase, topics: list[str], broker: Apache, tmp_path: Path
) -> None:
    client = {**broker.make_client_config("SASL_PLAINTEXT"), "sasl.password": "mistaken-password"}
    refused = ConsumerStarter(make_environment(broker, database, client), tmp_path)
    try:
        running = refused.start_consumer()
        assert running.process.wait(120) == 1
        page_text = running.read_log()
        place = client["bootstrap.servers"]
        assert f"annals: Kafka at {place} refuses the login: correct ANNALS_KAFKA_SASL" in page_text
        assert "mistaken-password" not in page_text
        assert "Traceback" not in page_text
    finally:
        refused.kill_all()


def change_password(broker: Apache, password: str) -> None:
    """Change the password of the SASL login. Open connections stay open."""
    change = UserScramCredentialUpsertion(
        USER, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192), password.encode()
    )
    client = AdminClient(broker.make_client_config())  # must live until the answer is there
    for future in client.alter_user_scram_credentials([change]).values():
        future.result(120)


def test_running_consumer_waits_and_reports_when_kafka_refuses_its_password(
    database: ProductDatabase, feed_messages: MessageFeed, broker: Apache, tmp_path: Path
) -> None:
    password = (broker.home / "password").read_text()
    secured = ConsumerStarter(
        make_environment(broker, database, broker.make_client_config("SASL_PLAINTEXT")), tmp_path
    )
    [port] = choose_free_ports([None])
    address = f"http://127.0.0.1:{port}/metrics"

    def is_login_refused() -> bool:
        with urlopen(address, timeout=120) as answer:
            return b'annals_login_refused{server="kafka"} 1.0' in answer.read()

    try:
        running = secured.start_consumer("--metrics-port", str(port))
        running.wait_until_reading()
        feed_messages.send_many(50)
        wait_until(lambda: database.count_read() == 50, running.read_log)
        assert not is_login_refused()
        change_password(broker, "another-password")
        broker.stop()
        broker.start()
        wait_until(is_login_refused, running.read_log)
        assert running.process.poll() is None
        change_password(broker, password)
        feed_messages.send_many(50)
        wait_until(lambda: database.count_read() == 100, running.read_log)
        wait_until(lambda: not is_login_refused(), running.read_log)
        page_text = running.read_log()
        assert "refuses the login" in page_text
        assert "Nothing is lost; trying again" in page_text
        assert password not in page_text
        running.terminate()
    finally:
        change_password(broker, password)
        secured.kill_all()


def test_transaction_markers_count_as_skipped_and_not_lost(
    consumers: ConsumerStarter, database: ProductDatabase, broker: Apache
) -> None:
    """The consumer does not get messages of aborted transactions. A transaction marker has an
    offset. The lag is 0 even if the last offset belongs to a transaction marker. The consumer uses
    the fetch wait that docs/kafka.md recommends."""
    produce_messages(broker.make_client_config(), (TOPIC, make_value(id="first")))
    producer = Producer({**broker.make_client_config(), "transactional.id": "upstream"})
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        for part in range(5):
            body = make_value(id="kept" if number % 2 else "dropped", version=number * 10 + part)
            producer.produce(TOPIC, body, partition=0)
        producer.flush()
        (producer.commit_transaction if number % 2 else producer.abort_transaction)(30)
    consumers.env["ANNALS_KAFKA_FETCH_WAIT_MAX_MS"] = "500"
    summary = consumers.consume_to_end("--topics", TOPIC)
    assert summary["stored"] == 16
    ids = database.query("SELECT DISTINCT id FROM product_instance_aud ORDER BY id")
    assert [row["id"] for row in ids] == ["first", "kept"]
    figures = consumers.read_ledger()
    assert figures["ok"]
    assert figures["totals"]["skipped"] == 3 * 5 + 6
    assert (figures["totals"]["lost"], figures["totals"]["lag"]) == (0, 0)
    assert database.count_rows("ingest_gap") == 0


def test_messages_that_broker_deleted_before_they_were_read_count_as_lost(
    consumers: ConsumerStarter, database: ProductDatabase, broker: Apache
) -> None:
    produce_messages(
        broker.make_client_config(), *((TOPIC, make_value(id="a", version=n)) for n in range(10))
    )
    assert consumers.consume_to_end("--topics", TOPIC)["read"] == 10
    produce_messages(
        broker.make_client_config(), *((TOPIC, make_value(id="b", version=n)) for n in range(20))
    )
    doomed = TopicPartition(TOPIC, 0, 25)
    admin = brokers.make_admin_client(broker)
    for future in admin.delete_records([doomed]).values():
        future.result(120)
    assert consumers.consume_to_end("--topics", TOPIC)["read"] == 5
    process = consumers.run_command("ledger", "--json")
    assert process.returncode == 1
    figures = json.loads(process.stdout)
    assert figures["totals"]["lost"] == 15
    assert "15 messages were deleted by the broker before they were read" in figures["faults"][0]
