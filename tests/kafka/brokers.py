"""What the Kafka tests do to a broker, embedded or Apache's."""

import time
from collections.abc import Callable, Iterable, Mapping

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from annals.embedded.daemon import Daemon

INTERNAL = "__"


def admin(broker: Daemon) -> AdminClient:
    return AdminClient(broker.client())


def create(
    broker: Daemon,
    names: Iterable[str],
    partitions: int = 3,
    settings: Mapping[str, str] | None = None,
) -> list[str]:
    """Create the topics, with this many partitions each; their names, in the order given.
    settings: of the topics."""
    wanted = list(names)
    client = admin(broker)
    made = client.create_topics(
        [NewTopic(name, partitions, 1, config=dict(settings or {})) for name in wanted]
    )
    for future in made.values():
        future.result(20)
    _until(lambda: set(wanted) <= set(listed(client)), f"{wanted} not listed")
    return wanted


def delete(broker: Daemon, names: Iterable[str]) -> None:
    """Delete the topics; returns when the broker lists them no more."""
    unwanted = list(names)
    if not unwanted:
        return
    client = admin(broker)
    for future in client.delete_topics(unwanted).values():
        future.result(20)
    _until(lambda: not set(unwanted) & set(listed(client)), f"{unwanted} still listed")


def clear(broker: Daemon) -> None:
    """Delete all topics but the broker's own; what was committed for them goes with them."""
    delete(broker, listed(admin(broker)))


def listed(client: AdminClient) -> list[str]:
    names = client.list_topics(timeout=20).topics
    return [name for name in names if not name.startswith(INTERNAL)]


def topic_id(broker: Daemon, name: str) -> str:
    """The id that the broker gave to the topic when it was made, as text."""
    client = admin(broker)
    described = client.describe_topics(TopicCollection([name]))[name].result(20)
    return str(described.topic_id)


def _until(condition: Callable[[], bool], complaint: str, timeout: float = 20) -> None:
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
