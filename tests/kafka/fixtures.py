"""Brokers for the tests: each test that asks for `broker` runs on both kinds.

The embedded broker starts in some 10 ms, so every test has its own. Apache Kafka takes seconds:
one for the whole run, its topics deleted before each test.
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
    """The run's Apache Kafka. Each conftest.py that imports this name has a fixture of its own."""
    return run_apache


@pytest.fixture(scope="session")
def run_apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apache]:
    """Apache Kafka with all listeners, one for the run: only tests/conftest.py imports it. Tests
    may stop it and leave it stopped."""
    required_programs.need_java()
    required_programs.need_maven()
    # A client left over from another test must not make the topics that a later one deleted.
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
    """A running broker without topics: once the embedded one, once Apache Kafka."""
    result = request.getfixturevalue(request.param)
    assert isinstance(result, KafkaServer)
    return result


@pytest.fixture
def topics(broker: KafkaServer) -> list[str]:
    """The product's ten topics, empty, with three partitions each."""
    return brokers.create_topics(broker, [topic for entity in ENTITIES for topic in entity.topics])


@pytest.fixture
def group() -> str:
    """A consumer group that no other test has a member in."""
    return f"test-{secrets.token_hex(6)}"
