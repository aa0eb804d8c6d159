"""Reads all messages of the topics back from the broker, without the consumer."""

import os
from dataclasses import dataclass, field
from typing import Any

from history import exactjson
from history.entities import BY_TOPIC, ENTITIES
from ingest.source import kafka
from ingest.source.producer import Producer

PARTITIONS = 3
# Read until no message follows. The end offset cannot be used: the embedded broker reports one
# that lies before the last batch.
ALL = 10**9
SHORT_WAIT = {"fetch.wait.max.ms": "10"}

# One message for each kind of error: the text, a type, a time, a missing field, a wrong value.
BAD = (
    b"not JSON",
    b'{"id": "bad-1", "version": "one"}',
    b'{"id": "bad-2", "version": 1, "type": "CREATE", "updatedAt": "yesterday", "clientId": "x",'
    b' "data": {}}',
    b'{"id": "bad-3", "version": 1, "type": "CREATE", "updatedAt": "2025-07-03T11:42:48", "data":'
    b' {"no": "clientId"}}',
    b'{"id": "bad-4", "version": -1, "type": "CREATE", "updatedAt": "2025-07-03T11:42:48",'
    b' "clientId": "x", "data": {}}',
)


@dataclass(frozen=True)
class Produced:
    """messages: their number. documents: by entity and id, then by version, the message."""

    messages: int = 0
    bad: int = 0
    repeated: int = 0
    documents: dict[tuple[str, str], dict[int, dict[str, Any]]] = field(default_factory=dict)

    @property
    def versions(self) -> int:
        return sum(map(len, self.documents.values()))


def add_bad_and_repeated(repeats: int) -> None:
    """Produce the bad messages, and repeat the first `repeats` messages of a topic."""
    servers = os.environ["KAFKA_BOOTSTRAP_SERVERS"]
    producer = Producer({"bootstrap.servers": servers})
    topic = ENTITIES[0].topics[0]
    for message in kafka.peek(servers, SHORT_WAIT, (topic, 0), 0, repeats):
        producer.send(topic, message.key or b"", message.value or b"")
    for number, value in enumerate(BAD):
        producer.send(topic, f"bad-{number}".encode(), value)
    producer.flush()


def read() -> Produced:
    """Everything on all topics."""
    servers = os.environ["KAFKA_BOOTSTRAP_SERVERS"]
    places = [(topic, n) for topic in BY_TOPIC for n in range(PARTITIONS)]
    messages = bad = repeated = 0
    documents: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    for place in places:
        for message in kafka.peek(servers, SHORT_WAIT, place, 0, ALL):
            messages += 1
            if message.value in BAD:
                bad += 1
                continue
            content: Any = exactjson.loads(message.value or b"")
            versions = documents.setdefault((BY_TOPIC[place[0]].name, content["id"]), {})
            repeated += content["version"] in versions
            versions[content["version"]] = content
    return Produced(messages, bad, repeated, documents)
