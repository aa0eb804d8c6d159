"""Fixtures with brokers. A test with the fixture `broker` runs twice: on the embedded broker and on
Apache Kafka.

The embedded broker starts in some 10 ms, so every test starts a new one. Apache Kafka needs
seconds, so all tests of a worker use one Apache Kafka, and topics are deleted before each test.
"""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from annals.embedded.broker import EmbeddedBroker, KafkaServer
from history.kinds.entities import ENTITIES
from tests import required_programs
from tests.apache.broker import Apache
from tests.kafka import brokers


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """An empty embedded broker."""
    broker = EmbeddedBroker(tmp_path / "broker")
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture(scope="session")
def apache_node(run_apache: Apache) -> Apache:
    """The Apache Kafka of the run. Each conftest.py that uses this fixture imports it."""
    return run_apache


@pytest.fixture(scope="session")
def run_apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apache]:
    """The Apache Kafka of this worker, with all listeners. Tests can stop it and leave it stopped.

    Only tests/conftest.py imports this fixture.
    """
    required_programs.need_java()
    required_programs.need_maven()
    # A client of an earlier test must not create topics again that a later test has deleted.
    settings = {"auto.create.topics.enable": "false"}
    node = Apache(
        tmp_path_factory.mktemp("apache") / "kafka", secured=True, settings=settings, quick=True
    )
    node.start()
    yield node
    node.kill()


@pytest.fixture
def apache(apache_node: Apache) -> Apache:
    """Apache Kafka, running and without topics."""
    apache_node.start()
    brokers.delete_all_topics(apache_node)
    return apache_node


@pytest.fixture(params=["embedded", "apache"])
def broker(request: pytest.FixtureRequest) -> KafkaServer:
    """A running broker without topics: the embedded broker, and in a second run Apache Kafka."""
    result = request.getfixturevalue(request.param)
    assert isinstance(result, KafkaServer)
    return result


@pytest.fixture
def topics(broker: KafkaServer) -> list[str]:
    """The product's ten topics, empty, with three partitions each."""
    return brokers.create_topics(broker, [topic for entity in ENTITIES for topic in entity.topics])


@pytest.fixture
def group() -> str:
    """The name of a consumer group that no other test uses."""
    return f"test-{secrets.token_hex(6)}"
