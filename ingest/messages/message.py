"""Kafka messages and topic partitions, as types that do not depend on a Kafka client."""

from __future__ import annotations

from hashlib import blake2b

import msgspec

# After the log of a partition was truncated, its topic id is `ID#2`, then `ID#3`, ...
TRUNCATION_MARK = "#"

# The name of a topic and the number of a partition, without the topic id.
KafkaPartition = tuple[str, int]


class TopicPartition(msgspec.Struct, frozen=True, order=True):
    """A topic partition during the life of one log, in which no offset is used twice.

    If the topic is created again or the log is truncated, the partition gets a new topic id, and so
    becomes a new `TopicPartition`.
    """

    topic: str
    # Kafka's topic id, which changes when the topic is created again; "" if the brokers have none.
    # After a truncation of the log, TRUNCATION_MARK and a count are appended.
    topic_id: str
    partition: int

    @property
    def kafka(self) -> KafkaPartition:
        """The topic and the number of the partition, without the topic id."""
        return self.topic, self.partition

    @property
    def broker_id(self) -> str:
        """The id of the topic at the broker: `topic_id` without the count of truncations."""
        return self.topic_id.partition(TRUNCATION_MARK)[0]

    @property
    def truncations(self) -> int:
        """How many times the log of this partition was truncated."""
        return int(self.topic_id.partition(TRUNCATION_MARK)[2] or 1) - 1

    def make_successor(self) -> TopicPartition:
        """Return the `TopicPartition` for this partition after the next truncation of the log."""
        topic_id = f"{self.broker_id}{TRUNCATION_MARK}{self.truncations + 2}"
        return TopicPartition(self.topic, topic_id, self.partition)


class KafkaMessage(msgspec.Struct, frozen=True, gc=False):
    """One Kafka message, byte for byte."""

    topic: str
    partition: int
    offset: int
    timestamp: int  # milliseconds since the epoch; -1 if not known
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    leader_epoch: int = -1  # the epoch of the leader that wrote the message; -1 if not known

    @property
    def size(self) -> int:
        """The number of bytes in key, value and headers."""
        size = len(self.key or b"") + len(self.value or b"")
        if self.headers:
            size += sum(len(name) + len(value or b"") for name, value in self.headers)
        return size


DIGEST_BYTES = 16


class LastMessage(msgspec.Struct, frozen=True):
    """The last message that was read from a partition. It later shows if the log was truncated."""

    offset: int
    leader_epoch: int  # the epoch of the leader that wrote the message; -1 if not known
    digest: bytes  # the digest of the message's time, key and value

    @classmethod
    def from_message(cls, message: KafkaMessage) -> LastMessage:
        return cls(message.offset, message.leader_epoch, _hash_message(message))

    def is_same(self, message: KafkaMessage) -> bool:
        """Return whether `message` has the same offset, leader epoch and content.

        A leader epoch that is not known (-1) counts as equal.
        """
        epochs = (self.leader_epoch, message.leader_epoch)
        return (
            self.offset == message.offset
            and (epochs[0] == epochs[1] or -1 in epochs)
            and self.digest == _hash_message(message)
        )

    def may_be_gone(self, first_offset: int, leader_epoch: int) -> bool:
        """Return whether the broker can lack this message although the log was not truncated.

        The broker may have deleted the message, or removed it by compaction.

        Args:
            first_offset: The first offset at the broker.
            leader_epoch: The leader epoch of the next message that the broker has; -1 if it is not
                known. If both messages have the same leader epoch, the log was not truncated
                between them.
        """
        return first_offset > self.offset or self.leader_epoch == leader_epoch != -1


def _hash_message(message: KafkaMessage) -> bytes:
    hashed = blake2b(message.timestamp.to_bytes(8, signed=True), digest_size=DIGEST_BYTES)
    for part in (message.key, message.value):
        # The length comes first, so that two different messages never give the same bytes.
        hashed.update((-1 if part is None else len(part)).to_bytes(8, signed=True))
        hashed.update(part or b"")
    return hashed.digest()
