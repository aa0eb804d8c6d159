"""What stands on the topics, read back from the broker without going through the consumer."""

import os
from dataclasses import dataclass, field
from typing import Any

from history import exactjson
from history.entities import BY_TOPIC, ENTITIES
from ingest.source import kafka
from ingest.source.producer import Producer

PARTITIONS = 3
# Read until nothing follows. (The end that the embedded broker names when asked for it lies before
# the last batch, so it cannot be counted on.)
ALL = 10**9
IMPATIENT = {"fetch.wait.max.ms": "10"}

# One for each way of being wrong: the text, the types, the fields, what a database cannot hold.
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
    """messages: how many. documents: by entity and id, by version, what the message said."""

    messages: int = 0
    bad: int = 0
    repeated: int = 0
    documents: dict[tuple[str, str], dict[int, dict[str, Any]]] = field(default_factory=dict)

    @property
    def versions(self) -> int:
        return sum(map(len, self.documents.values()))


def spoil(repeats: int) -> None:
    """Produce the bad messages, and `repeats` messages that are there already once more."""
    servers = os.environ["KAFKA_BOOTSTRAP_SERVERS"]
    producer = Producer({"bootstrap.servers": servers})
    topic = ENTITIES[0].topics[0]
    for message in kafka.peek(servers, IMPATIENT, (topic, 0), 0, repeats):
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
        for message in kafka.peek(servers, IMPATIENT, place, 0, ALL):
            messages += 1
            if message.value in BAD:
                bad += 1
                continue
            said: Any = exactjson.loads(message.value or b"")
            versions = documents.setdefault((BY_TOPIC[place[0]].name, said["id"]), {})
            repeated += said["version"] in versions
            versions[said["version"]] = said
    return Produced(messages, bad, repeated, documents)
