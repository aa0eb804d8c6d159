"""Operations on a broker for tests, embedded or Apache Kafka."""

import struct
import time
from collections.abc import Callable, Iterable, Mapping

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from annals.embedded.broker import KafkaServer
from tests.apache.broker import Apache

INTERNAL = "__"


def make_admin_client(broker: KafkaServer) -> AdminClient:
    return AdminClient(broker.make_client_config())


def create_topics(
    broker: KafkaServer,
    names: Iterable[str],
    partitions: int = 3,
    settings: Mapping[str, str] | None = None,
) -> list[str]:
    """Create topics with the same number of partitions and the same settings.

    Return the names in their order.
    """
    expected = list(names)
    client = make_admin_client(broker)
    futures = client.create_topics(
        [NewTopic(name, partitions, 1, config=dict(settings or {})) for name in expected]
    )
    for future in futures.values():
        future.result(120)
    _wait_until(lambda: set(expected) <= set(list_topics(client)), f"{expected} not listed")
    return expected


def delete_topics(broker: KafkaServer, names: Iterable[str]) -> None:
    """Delete topics, and wait until the broker does not list them any more."""
    unwanted = list(names)
    if not unwanted:
        return
    client = make_admin_client(broker)
    for future in client.delete_topics(unwanted).values():
        future.result(120)
    _wait_until(lambda: not set(unwanted) & set(list_topics(client)), f"{unwanted} still listed")


def delete_all_topics(broker: KafkaServer) -> None:
    """Delete all topics except internal ones. Their committed offsets are deleted with them."""
    delete_topics(broker, list_topics(make_admin_client(broker)))


def list_topics(client: AdminClient) -> list[str]:
    names = client.list_topics(timeout=120).topics
    return [name for name in names if not name.startswith(INTERNAL)]


def fetch_topic_id(broker: KafkaServer, name: str) -> str:
    """Return the id that the broker gave to the topic when it was created."""
    client = make_admin_client(broker)
    described = client.describe_topics(TopicCollection([name]))[name].result(120)
    return str(described.topic_id)


def truncate_partitions(node: Apache, topic: str, offset: int, partitions: int = 1) -> None:
    """Truncate the first partitions of a topic at an offset, as after a crash of the node.

    A node that crashes loses messages that it has not written to its disk. Batches are removed as a
    whole.
    """
    node.kill()
    data = node.home / "data"
    for partition in range(partitions):
        [log] = (data / f"{topic}-{partition}").glob("*.log")
        content, position = log.read_bytes(), 0
        while position < len(content):
            base, length = struct.unpack_from(">qi", content, position)
            if base >= offset:
                break
            position += 12 + length
        with log.open("r+b") as opened:
            opened.truncate(position)
        # The node creates these files again from the log.
        for path in log.parent.iterdir():
            if path.suffix in (".index", ".timeindex", ".txnindex", ".snapshot"):
                path.unlink()
    for path in data.glob("*-checkpoint"):
        path.unlink()
    node.start()


def _wait_until(condition: Callable[[], bool], complaint: str, timeout: float = 20) -> None:
    deadline = time.monotonic() + timeout
    while True:
        try:
            if condition():
                return
        except KafkaException:
            pass
        if time.monotonic() > deadline:
            raise TimeoutError(complaint)
        time.sleep(0.02)
