"""A claim: the right of one consumer to write a topic partition."""

from collections.abc import Mapping
from dataclasses import dataclass

from ingest.messages.message import LastMessage, TopicPartition


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to write one partition, until another consumer claims it with a higher epoch."""

    source: TopicPartition
    epoch: int
    next_offset: int  # the offset to read next
    resume_until: int  # bad messages before it go to quarantine, whatever the limits are
    halted: bool
    reread_until: int = 0  # the quarantine has messages up to this offset; 0 if none
    last: LastMessage | None = None  # the message before next_offset, if known and still there

    @property
    def is_first_after_cut(self) -> bool:
        """Whether this claim is the first one of the log since it was cut."""
        return self.epoch == 1 and self.source.cuts > 0


Claims = Mapping[TopicPartition, Claim]
# The end offset of each partition; None if it is not known.
Ends = Mapping[TopicPartition, int | None]
