"""What the Kafka tests do to a broker, embedded or Apache's."""

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
    """Create the topics, with this many partitions each; their names, in the order given.
    settings: of the topics."""
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
    """Delete the topics; returns when the broker lists them no more."""
    unwanted = list(names)
    if not unwanted:
        return
    client = make_admin_client(broker)
    for future in client.delete_topics(unwanted).values():
        future.result(120)
    _wait_until(lambda: not set(unwanted) & set(list_topics(client)), f"{unwanted} still listed")


def delete_all_topics(broker: KafkaServer) -> None:
    """Delete all topics but the broker's own; what was committed for them goes with them."""
    delete_topics(broker, list_topics(make_admin_client(broker)))


def list_topics(client: AdminClient) -> list[str]:
    names = client.list_topics(timeout=120).topics
    return [name for name in names if not name.startswith(INTERNAL)]


def fetch_topic_id(broker: KafkaServer, name: str) -> str:
    """The id that the broker gave to the topic when it was made, as text."""
    client = make_admin_client(broker)
    described = client.describe_topics(TopicCollection([name]))[name].result(120)
    return str(described.topic_id)


def cut_partitions(node: Apache, topic: str, offset: int, partitions: int = 1) -> None:
    """Have the first partitions of the topic end at this offset, as if the node had lost what it
    had not yet written to its disk. Batches are cut as a whole."""
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
        # Made anew from the log.
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
