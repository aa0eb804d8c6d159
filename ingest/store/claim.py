"""A claim: the right of one consumer to move the ledger row of a topic partition."""

from collections.abc import Mapping
from dataclasses import dataclass

from ingest.messages.message import LastMessage, TopicPartition


@dataclass(frozen=True, slots=True)
class Claim:
    """The right of one consumer to move the ledger row of one topic partition.

    It ends when a consumer claims the topic partition with a higher epoch.
    """

    topic_partition: TopicPartition
    epoch: int
    next_offset: int  # the offset to read next
    resume_until: int  # bad messages before this offset do not halt the partition
    halted: bool
    # The quarantine has messages from next_offset up to this offset: they were read before, and
    # will be read again. 0 if it has none.
    reread_until: int = 0
    # The message that was read last; None if it is not known, or the broker has deleted it.
    last: LastMessage | None = None

    @property
    def is_first_after_truncation(self) -> bool:
        """Whether this is the first claim since the log of the partition was truncated."""
        return self.epoch == 1 and self.topic_partition.truncations > 0


Claims = Mapping[TopicPartition, Claim]
# The end offset of each partition; None if it is not known.
Ends = Mapping[TopicPartition, int | None]
