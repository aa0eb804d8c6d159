"""The last message of a partition, as the ledger remembers it to recognise the log. Pure."""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from ingest.source.message import Message

DIGEST_BYTES = 16


class LastMessage(msgspec.Struct, frozen=True):
    """The last message that was read of a partition. leader_epoch: number of the leader that wrote
    it to the log, -1 if unknown. digest: of its time, key and value."""

    offset: int
    leader_epoch: int
    digest: bytes

    @classmethod
    def of(cls, message: Message) -> LastMessage:
        return cls(message.offset, message.leader_epoch, _digest(message))

    def same(self, message: Message) -> bool:
        """Whether this is the message. The same content from another leader is not: it was sent
        again, into another log."""
        epochs = (self.leader_epoch, message.leader_epoch)
        return (
            self.offset == message.offset
            and (epochs[0] == epochs[1] or -1 in epochs)
            and self.digest == _digest(message)
        )

    def may_be_gone(self, low: int, leader_epoch: int) -> bool:
        """Whether the message may be gone from an intact log. low: the first offset at the broker.
        leader_epoch: of the next message that is there, -1 if unknown or none.

        The broker deletes old messages at the start, and compaction deletes them in between. A
        leader never cuts its own log, so a later message by the same leader proves it intact.
        """
        return low > self.offset or self.leader_epoch == leader_epoch != -1


def _digest(message: Message) -> bytes:
    hashed = blake2b(message.timestamp.to_bytes(8, signed=True), digest_size=DIGEST_BYTES)
    for part in (message.key, message.value):
        # The length first: no two messages give the same bytes.
        hashed.update((-1 if part is None else len(part)).to_bytes(8, signed=True))
        hashed.update(part or b"")
    return hashed.digest()
