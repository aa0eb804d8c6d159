"""`annals consume` stores messages of both brokers: the embedded broker and Apache Kafka."""

import time
from collections.abc import Iterable
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Producer

from annals.embedded.broker import KafkaServer
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
from tests.messages import TOPIC, TWIN_TOPIC, make_value
from tests.processes import consumers, database, feed, server

pytestmark = pytest.mark.kafka
__all__ = ["consumers", "database", "feed", "server"]


def test_consumer_stores_every_produced_message(
    consumers: ConsumerStarter, database: ProductDatabase, feed: MessageFeed
) -> None:
    feed.send_many(3_000)
    summary = consumers.consume_to_end()
    assert summary["read"] == summary["stored"] == 3_000
    assert_complete(consumers, database, feed)
    again = consumers.consume_to_end()
    assert again["read"] == 0
    assert_complete(consumers, database, feed)


@pytest.mark.one_broker
def test_run_until_idle_fails_when_topics_do_not_exist(
    broker: KafkaServer, database: ProductDatabase, tmp_path: Path
) -> None:
    """The brokers then assign no partitions. The embedded broker does not even form the group."""
    consumers = ConsumerStarter(make_environment(broker, database), tmp_path)
    try:
        ended = consumers.start_consumer("--until-idle", "1")
        assert ended.process.wait(120) == 1
        assert "annals: the brokers have no topic top-storage.export." in ended.read_log()
        running = consumers.start_consumer()
        wait_until(
            lambda: "the brokers have no topic " in running.read_log(), running.read_log, seconds=60
        )
        assert "top-storage.export.product-task" in running.read_log()
        running.terminate()
    finally:
        consumers.kill_all()


def test_consumer_stores_new_messages_at_once_and_stops_cleanly_at_sigterm(
    consumers: ConsumerStarter, database: ProductDatabase, feed: MessageFeed
) -> None:
    running = consumers.start_consumer()
    running.wait_until_reading()
    feed.send_many(1)
    wait_until(lambda: database.count_stored_versions() == 1, running.read_log, seconds=120)
    with feed.send_in_background(500):
        time.sleep(1)
        summary = running.terminate()
    assert summary["read"] == summary["stored"] == database.count_stored_versions() > 1
    assert database.count_read() == summary["read"]
    consumers.consume_to_end()
    assert_complete(consumers, database, feed)


@pytest.mark.one_broker
def test_consumer_reads_only_named_topics(
    consumers: ConsumerStarter, database: ProductDatabase, broker: KafkaServer
) -> None:
    produce_messages(
        broker.make_client_config(),
        (TOPIC, make_value(id="live"), "a"),
        (TWIN_TOPIC, make_value(id="old"), "a"),
    )
    summary = consumers.consume_to_end("--topics", TWIN_TOPIC)
    assert summary["read"] == 1
    assert [row["id"] for row in database.query("SELECT id FROM product_instance_aud")] == ["old"]
    wrong = consumers.run_command("consume", "--topics", "top-storage.export.loan")
    assert wrong.returncode != 0
    assert "top-storage.export.loan" in wrong.stderr


def test_recreated_topic_is_read_from_its_start(
    consumers: ConsumerStarter, database: ProductDatabase, broker: KafkaServer
) -> None:
    produce_messages(
        broker.make_client_config(),
        *((TOPIC, make_value(id="a", version=n), "a") for n in range(10)),
    )
    assert consumers.consume_to_end("--topics", TOPIC)["stored"] == 10
    brokers.delete_topics(broker, [TOPIC])
    brokers.create_topics(broker, [TOPIC])
    produce_messages(
        broker.make_client_config(),
        *((TOPIC, make_value(id="b", version=n), "b") for n in range(4)),
    )
    assert consumers.consume_to_end("--topics", TOPIC)["stored"] == 4
    assert database.count_rows() == 14
    figures = consumers.read_ledger()
    assert figures["ok"]
    own_partitions = [
        partition for partition in figures["partitions"] if partition["partition"] == 0
    ]
    assert {(item["current"], item["read"]) for item in own_partitions} == {(False, 10), (True, 4)}


# Not on the embedded broker: librdkafka 2.16 crashes in rd_kafka_metadata_update_op when that
# broker answers a fetch with the old topic's id.
@pytest.mark.parametrize("broker", ["apache"], indirect=True)
def test_running_consumer_reads_recreated_topic_from_its_start(
    consumers: ConsumerStarter, database: ProductDatabase, broker: KafkaServer
) -> None:
    running = consumers.start_consumer("--topics", TOPIC)
    running.wait_until_reading()
    produce_messages(
        broker.make_client_config(),
        *((TOPIC, make_value(id="a", version=n), "a") for n in range(10)),
    )
    wait_until(lambda: database.count_rows() == 10, running.read_log)
    brokers.delete_topics(broker, [TOPIC])
    brokers.create_topics(broker, [TOPIC])
    produce_messages(
        broker.make_client_config(),
        *((TOPIC, make_value(id="b", version=n), "b") for n in range(4)),
    )
    wait_until(lambda: database.count_rows() == 14, running.read_log, seconds=120)
    running.terminate()
    assert consumers.run_command("ledger").returncode == 0


CONNECTIONS = (
    "SELECT pid FROM pg_stat_activity WHERE datname = %s AND application_name = 'annals-consume'"
)


def produce_versions(
    broker: KafkaServer, topic: str, partition: int, versions: Iterable[tuple[str, int]]
) -> None:
    """Produce versions of documents to one partition, in this order."""
    producer = Producer({**broker.make_client_config(), "acks": "all"})
    for name, version in versions:
        body = make_value(id=name, version=version, data={"number": f"N-{name}", "n": version})
        producer.produce(topic, body, name, partition=partition)
    assert producer.flush(60) == 0


@pytest.mark.one_broker
def test_lane_continues_while_the_write_of_another_lane_waits(
    consumers: ConsumerStarter, database: ProductDatabase, broker: KafkaServer
) -> None:
    """One consumer writes two batches at the same time, over two connections."""
    running = consumers.start_consumer()
    running.wait_until_reading()
    for partition in range(2):
        produce_versions(broker, TOPIC, partition, [(f"first-{partition}", 0)])
    wait_until(lambda: database.count_read() == 2, running.read_log)
    assert len(database.query(CONNECTIONS, database.name)) == 2
    with psycopg.connect(database.url) as plain:
        plain.execute(
            "SELECT FROM ingest_ledger WHERE topic = %s AND partition = 0 FOR UPDATE", (TOPIC,)
        )
        produce_versions(broker, TOPIC, 0, [("waits", 0)])
        for number in range(5):
            produce_versions(broker, TOPIC, 1, [("goes on", number)])
            wait_until(lambda number=number: database.count_rows() == 3 + number, running.read_log)  # type: ignore[misc]
    wait_until(lambda: database.count_rows() == 8, running.read_log)
    running.terminate()
    assert consumers.run_command("ledger").returncode == 0
