"""The embedded broker for tests of whole processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from annals.embedded.broker import Broker
from annals.embedded.daemon import Daemon
from history.entities import ENTITIES
from tests.kafka import brokers


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Daemon]:
    """An empty embedded broker, running."""
    made = Broker(tmp_path / "broker")
    made.start()
    yield made
    made.kill()


@pytest.fixture
def topics(broker: Daemon) -> list[str]:
    """The product's ten topics, empty, with three partitions each."""
    return brokers.create(broker, [topic for entity in ENTITIES for topic in entity.topics])
