"""What Annals relies on in a broker, on both kinds: topic ids, and topics made again empty."""

import pytest
from confluent_kafka import Consumer, Message, Producer

from annals.embedded.broker import Daemon
from tests.kafka import brokers

pytestmark = pytest.mark.kafka


def produce(broker: Daemon, topic: str, value: bytes) -> int:
    """The offset that the message got."""
    offsets: list[int] = []

    def delivered(error: object, message: Message) -> None:
        assert error is None
        offset = message.offset()
        assert offset is not None
        offsets.append(offset)

    producer = Producer(broker.client())
    producer.produce(topic, value, partition=0, on_delivery=delivered)
    assert producer.flush(20) == 0
    return offsets[0]


def test_topics_are_the_ten_of_the_product(broker: Daemon, topics: list[str]) -> None:
    assert len(topics) == 10
    assert sorted(brokers.listed(brokers.admin(broker))) == sorted(topics)


def test_a_topic_made_again_has_another_id_and_starts_at_zero(broker: Daemon) -> None:
    brokers.create(broker, ["ids", "other"])
    before = brokers.topic_id(broker, "ids")
    assert before not in ("", brokers.topic_id(broker, "other"))
    assert brokers.topic_id(broker, "ids") == before
    assert [produce(broker, "ids", b"x") for _ in range(2)] == [0, 1]
    brokers.delete(broker, ["ids"])
    brokers.create(broker, ["ids"])
    assert brokers.topic_id(broker, "ids") != before
    assert produce(broker, "ids", b"x") == 0


def test_committed_offsets_and_large_messages(broker: Daemon, group: str) -> None:
    brokers.create(broker, ["large"], partitions=1)
    value = bytes(range(256)) * 4096
    producer = Producer({**broker.client(), "message.max.bytes": 4_000_000})
    for _ in range(3):
        producer.produce("large", value)
    assert producer.flush(20) == 0
    settings = {
        **broker.client(),
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 6000,
    }
    for expected in (0, 1):
        consumer = Consumer(settings)
        consumer.subscribe(["large"])
        message = consumer.poll(30)
        assert message is not None
        assert (message.error(), message.offset(), message.value()) == (None, expected, value)
        consumer.commit(message=message, asynchronous=False)
        consumer.close()
