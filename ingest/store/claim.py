"""The right to write one topic partition. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ingest.source.last_message import LastMessage
from ingest.source.message import TopicPartition


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to write one partition from next_offset on, until another consumer claims it with
    a higher epoch. resume_until: bad messages before this offset go to quarantine, whatever the
    limits are. reread_until: the quarantine has messages from next_offset up to here, because the
    partition is read again; 0 if it has none. last: the last message before next_offset, if it is
    known and the broker should still have it."""

    source: TopicPartition
    epoch: int
    next_offset: int
    resume_until: int
    halted: bool
    reread_until: int = 0
    last: LastMessage | None = None
