"""Apache Kafka itself: restarts keep its data; TLS and SASL let in whom they should."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from annals.embedded.broker import Client
from tests.apache import certificates
from tests.apache.broker import SECURED, Apache
from tests.kafka import brokers

pytestmark = pytest.mark.kafka


def values(node: Apache, topic: str) -> list[bytes | None]:
    """All values of a topic of one partition."""
    settings: Client = {
        **node.client(),
        "group.id": "reader",
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    found = []
    while True:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            break
        found.append(message.value())
    consumer.close()
    return found


def test_data_port_and_ids_survive_a_stop_and_a_sigkill(apache: Apache) -> None:
    brokers.create(apache, ["kept"], partitions=1)
    ports, identity = apache.ports(), brokers.topic_id(apache, "kept")
    for value, end in ((b"one", apache.stop), (b"two", apache.kill)):
        producer = Producer({**apache.client(), "acks": "all"})
        producer.produce("kept", value)
        assert producer.flush(20) == 0
        end()
        assert apache.pid() is None
        assert apache.start() is True
        assert apache.ports() == ports
    assert brokers.topic_id(apache, "kept") == identity
    assert values(apache, "kept") == [b"one", b"two"]


def test_starting_a_running_one_finds_it(apache: Apache) -> None:
    again = Apache(apache.home, secured=True, quick=True)
    assert again.start() is False
    assert again.pid() == apache.pid()


@pytest.mark.parametrize("protocol", SECURED)
def test_a_client_with_authority_and_password_gets_in(apache: Apache, protocol: str) -> None:
    brokers.create(apache, ["secured"], partitions=1)
    producer = Producer(apache.client(protocol))
    producer.produce("secured", protocol)
    assert producer.flush(20) == 0
    assert values(apache, "secured") == [protocol.encode()]


@pytest.mark.parametrize(
    "protocol, wrong, reason",
    [
        ("SSL", "ssl.ca.location", KafkaError._SSL),
        ("SASL_PLAINTEXT", "sasl.password", KafkaError._AUTHENTICATION),
        ("SASL_PLAINTEXT", "sasl.username", KafkaError._AUTHENTICATION),
        ("SASL_SSL", "sasl.password", KafkaError._AUTHENTICATION),
        ("SASL_SSL", "ssl.ca.location", KafkaError._SSL),
    ],
)
def test_a_client_without_does_not(
    apache: Apache, tmp_path: Path, protocol: str, wrong: str, reason: int
) -> None:
    stranger, _ = certificates.make(tmp_path)
    said: list[int] = []
    settings: dict[str, Any] = {
        **apache.client(protocol),
        wrong: str(stranger) if wrong == "ssl.ca.location" else "somebody",
        "error_cb": lambda error: said.append(error.code()),
    }
    client = AdminClient(settings)
    with pytest.raises(KafkaException):
        client.list_topics(timeout=1)
    client.poll(1)
    assert reason in said


def test_secrets_are_not_shown_and_not_readable(apache: Apache) -> None:
    password = (apache.home / "password").read_text()
    assert password not in apache.describe()
    assert str(apache.port("SASL_SSL")) in apache.describe()
    for name in ("password", "server.pem", "server.properties"):
        assert (apache.home / name).stat().st_mode & 0o077 == 0
