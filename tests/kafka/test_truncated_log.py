"""Consumers read the truncated log of a topic partition again from its start, and report this."""

import json
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.apache.broker import Apache
from tests.consuming import ConsumerStarter, ProductDatabase, wait_until
from tests.kafka import brokers
from tests.messages import TOPIC, make_value
from tests.processes import consumers, database, server

# Only Apache Kafka keeps its log in a file, which the tests can truncate.
pytestmark = [pytest.mark.kafka, pytest.mark.parametrize("broker", ["apache"], indirect=True)]
__all__ = ["consumers", "database", "server"]


def produce_versions(broker: Apache, name: str, count: int, partition: int = 0) -> None:
    """Produce versions 0 to `count` - 1 of the application `name`, one Kafka batch per version."""
    producer = Producer({**broker.make_client_config(), "acks": "all", "batch.num.messages": 1})
    for number in range(count):
        producer.produce(TOPIC, make_value(id=name, version=number), partition=partition)
    assert producer.flush(60) == 0


def wait_until_stored(database: ProductDatabase) -> set[tuple[str, int]]:
    rows = database.query("SELECT id, version FROM product_instance_aud")
    return {(row["id"], row["version"]) for row in rows}


def list_stored_versions(**names: int) -> set[tuple[str, int]]:
    return {(name, number) for name, count in names.items() for number in range(count)}


def list_reported_truncations(consumers: ConsumerStarter) -> list[dict[str, Any]]:
    """Return the topic partitions that `annals ledger` reports with a truncated log."""
    told = consumers.run_command("ledger", "--json")
    assert told.returncode == 0, told.stdout + told.stderr
    return [partition for partition in json.loads(told.stdout)["partitions"] if partition["logCut"]]


def test_log_truncated_while_no_consumer_ran_is_read_again(
    consumers: ConsumerStarter, database: ProductDatabase, broker: Apache
) -> None:
    """The new logs are shorter than, as long as, or longer than the old logs. One has a transaction
    marker at the offset of the last old message."""
    brokers.delete_topics(broker, [TOPIC])
    brokers.create_topics(broker, [TOPIC], partitions=4)
    for partition in range(4):
        produce_versions(broker, f"old{partition}", 20, partition)
    assert consumers.consume_to_end("--topics", TOPIC)["read"] == 80
    brokers.truncate_partitions(broker, TOPIC, 10, partitions=4)
    for partition, count in enumerate((2, 10, 30)):
        produce_versions(broker, f"new{partition}", count, partition)
    producer = Producer({**broker.make_client_config(), "transactional.id": "upstream"})
    producer.init_transactions(30)
    for number in range(10):
        producer.begin_transaction()
        producer.produce(TOPIC, make_value(id="new3", version=number), partition=3)
        producer.commit_transaction(30)
    consumers.consume_to_end("--topics", TOPIC)
    old = list_stored_versions(**{f"old{partition}": 20 for partition in range(4)})
    assert wait_until_stored(database) == old | list_stored_versions(
        new0=2, new1=10, new2=30, new3=10
    )
    assert "was truncated" in consumers.all[-1].read_log()
    result = {
        # Not nextOffset: the broker may have written the marker of another test's transaction late.
        cut["partition"]: (cut["read"], cut["current"])
        for cut in list_reported_truncations(consumers)
    }
    assert result == dict.fromkeys(range(4), (20, False))
    assert consumers.run_command("ledger").stdout.count("CUT") == 4
    # Later consumers continue where this one has ended.
    produce_versions(broker, "later", 3)
    assert consumers.consume_to_end("--topics", TOPIC)["read"] == 3


@pytest.mark.parametrize("session_ms", [2_000, 60_000], ids=["new session", "same session"])
def test_log_truncated_while_consumer_was_frozen_is_read_again(
    consumers: ConsumerStarter, database: ProductDatabase, broker: Apache, session_ms: int
) -> None:
    """The consumer had nothing to read since its claim. It knows the old log only from the
    ledger."""
    produce_versions(broker, "old", 20)
    consumers.consume_to_end("--topics", TOPIC)
    running = consumers.start_consumer(
        "--topics", TOPIC, ANNALS_KAFKA_SESSION_TIMEOUT_MS=str(session_ms)
    )
    running.wait_until_reading()
    running.freeze_process()
    brokers.truncate_partitions(broker, TOPIC, 10)
    produce_versions(broker, "new", 30)
    running.wake_process()
    wait_until(
        lambda: wait_until_stored(database) == list_stored_versions(old=20, new=30),
        running.read_log,
    )
    running.terminate()
    assert len(list_reported_truncations(consumers)) == 1


def test_unchanged_log_does_not_count_as_truncated(
    consumers: ConsumerStarter, database: ProductDatabase, broker: Apache
) -> None:
    """This is true after the election of a different leader, and after a run of the consumer that
    read no message."""
    produce_versions(broker, "a", 5)
    for _ in range(2):
        assert consumers.consume_to_end("--topics", TOPIC)["batches"] <= 5
        broker.kill()
        broker.start()
    produce_versions(broker, "b", 5)
    assert consumers.consume_to_end("--topics", TOPIC)["read"] == 5
    assert list_reported_truncations(consumers) == []
    assert database.count_rows() == 10
