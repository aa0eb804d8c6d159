"""A Kafka message as the rest of Annals sees it."""

from __future__ import annotations

import msgspec

CUT = "#"

# Topic and number of a partition, whatever the topic's id.
KafkaPartition = tuple[str, int]


class TopicPartition(msgspec.Struct, frozen=True, order=True):
    """One partition of a topic as it exists now. topic_id tells it from an earlier topic of the
    same name; empty if the broker has no topic ids."""

    topic: str
    topic_id: str
    partition: int

    @property
    def kafka(self) -> KafkaPartition:
        """The partition as Kafka names it."""
        return self.topic, self.partition

    @property
    def broker_id(self) -> str:
        """The topic's id at the broker: without our count of truncations."""
        return self.topic_id.partition(CUT)[0]

    @property
    def cuts(self) -> int:
        """How often the log was truncated before."""
        return int(self.topic_id.partition(CUT)[2] or 1) - 1

    def after_cut(self) -> TopicPartition:
        """The same partition after its log was truncated: its offsets start again from 0."""
        return TopicPartition(self.topic, f"{self.broker_id}{CUT}{self.cuts + 2}", self.partition)


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message, byte for byte. timestamp: milliseconds since the epoch; -1: not known.
    leader_epoch: number of the leader that wrote it to the log; -1: not known."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    leader_epoch: int = -1

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        size = len(self.key or b"") + len(self.value or b"")
        if self.headers:
            size += sum(len(name) + len(value or b"") for name, value in self.headers)
        return size
