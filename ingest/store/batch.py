"""What one transaction writes: rows, rejects, and the progress of each partition."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from operator import attrgetter

import msgspec

from history.daily.window import Window, day_of
from history.entities import BY_NAME
from history.record import Record
from history.search_index.keys import NONE_KNOWN, Fingerprint, KeyRow, KnownFingerprints, NewKeys
from ingest.source.decode import Expired, Reason, Rejected, Repeated, decode
from ingest.source.message import LastMessage, Message, TopicPartition

GIANT_BYTES = 128 * 1024
_FREED_AT_ONCE = 100
_BY_ID = attrgetter("record.id")
_TIMESTAMP = attrgetter("timestamp")

# A kind of entity and a UTC day: the place of a row.
EntityDay = tuple[str, date]


@dataclass(frozen=True, slots=True)
class Limits:
    """When a batch is full."""

    rows: int
    bytes: int


class Row(msgspec.Struct, frozen=True, gc=False):
    """A good record with the message that it came from."""

    record: Record
    message: Message

    @property
    def day(self) -> EntityDay:
        return self.record.entity, day_of(self.record.updated_at)


class Reject(msgspec.Struct, frozen=True, gc=False):
    """A message for the quarantine."""

    message: Message
    reason: Reason
    detail: str


class OffsetGap(msgspec.Struct, frozen=True, gc=False):
    """Offsets [start, end) that the broker did not deliver. lost: the broker deleted messages
    before they were read. Otherwise there was no message (transaction markers, compaction)."""

    start: int
    end: int
    lost: bool


@dataclass(slots=True)
class PartitionProgress:
    """One partition within a batch: offsets [start, next) were read. good: messages with a record
    to store. last: the last message."""

    start: int
    next: int
    read: int = 0
    good: int = 0
    expired: int = 0
    newest_timestamp: int = -1
    gaps: list[OffsetGap] = field(default_factory=list)
    last: Message | None = field(default=None, compare=False)


class Batch:
    """Messages until it is full; giant ones get batches of their own. Offsets of a partition are
    contiguous; gaps are listed. keys, set by arrange(): the business keys to store, each with its
    newest day. expired: rows older than the window. unplaced: rows whose partition cannot be
    created. repeated: messages that say nothing new. known: fingerprints of keys that were stored
    before."""

    def __init__(self, limits: Limits, known: KnownFingerprints = NONE_KNOWN) -> None:
        self._limits = limits
        self._new_keys = NewKeys(known)
        self._arranged = 0
        self._giant = False
        self.bytes = 0
        self.messages = 0
        self.rows: dict[str, list[Row]] = {}
        self.keys: list[KeyRow] = []
        self.expired: list[Row] = []
        self.rejects: list[Reject] = []
        self.repeated: list[Message] = []
        self.unplaced: list[Reject] = []
        self.progress: dict[TopicPartition, PartitionProgress] = {}

    def takes(self, message: Message) -> bool:
        """Whether the message still fits. An empty batch takes any message."""
        if not self.messages:
            return True
        size = message.size
        return (
            self.messages < self._limits.rows
            and self.bytes + size <= self._limits.bytes
            and (size > GIANT_BYTES) is self._giant
        )

    def add(
        self,
        message: Message,
        source: TopicPartition,
        expected: int,
        window: Window,
        gaps: tuple[OffsetGap, ...] = (),
    ) -> Reject | None:
        """Add one message; returns the reject if it breaks the contract. expected: the next offset
        of its partition. gaps: cover the offsets from there to the message's own."""
        self._begun(source, expected).gaps.extend(gaps)
        return self._take([message], [message.size], source, window)[1]

    def add_run(
        self,
        messages: Sequence[Message],
        source: TopicPartition,
        expected: int,
        window: Window,
        skipping: bool = False,
    ) -> tuple[int, Reject | None]:
        """Add the messages that follow one another in this partition from the expected offset on,
        while they fit, up to the first that breaks the contract. skipping: offsets between them
        have no message. Returns how many were added, and the reject if the last of them is one."""
        sizes = self._fitting(messages, source, expected, skipping)
        if not sizes:
            return 0, None
        gaps = self._begun(source, expected).gaps
        added, reject = self._take(messages[: len(sizes)], sizes, source, window)
        if messages[added - 1].offset != expected + added - 1:
            for message in messages[:added]:
                if message.offset > expected:
                    gaps.append(OffsetGap(expected, message.offset, lost=False))
                expected = message.offset + 1
        return added, reject

    def _begun(self, source: TopicPartition, expected: int) -> PartitionProgress:
        progress = self.progress.get(source)
        if progress is None:
            progress = self.progress[source] = PartitionProgress(expected, expected)
        return progress

    def _fitting(
        self, messages: Sequence[Message], source: TopicPartition, expected: int, skipping: bool
    ) -> list[int]:
        """The sizes of the first messages that add_run() can take; as takes() for each of them."""
        topic, number = source.topic, source.partition
        room = max(0, self._limits.rows - self.messages, not self.messages)
        room_bytes = self._limits.bytes - self.bytes
        sizes: list[int] = []
        for message in messages[:room]:
            offset = message.offset
            if (
                (offset != expected and (offset < expected or not skipping))
                or message.partition != number
                or message.topic != topic
            ):
                break
            expected = offset + 1
            size = message.size
            room_bytes -= size
            if sizes or self.messages:
                giant = self._giant if self.messages else sizes[0] > GIANT_BYTES
                if room_bytes < 0 or (size > GIANT_BYTES) is not giant:
                    break
            sizes.append(size)
        return sizes

    def _take(
        self,
        messages: Sequence[Message],
        sizes: Sequence[int],
        source: TopicPartition,
        window: Window,
    ) -> tuple[int, Reject | None]:
        """Add messages of one partition up to the first that breaks the contract."""
        if not self.messages:
            self._giant = sizes[0] > GIANT_BYTES
        read, add_keys, rows, reject = decode.read, self._new_keys.add, None, None
        added = expired = 0
        for message in messages:
            added += 1
            try:
                record, found = read(message, window)
            except Repeated:
                self.repeated.append(message)
                continue
            except Rejected as error:
                reject = Reject(message, error.reason, error.detail)
                self.rejects.append(reject)
                break
            except Expired as error:
                expired += 1
                self.expired.append(Row(error.record, message))
                continue
            if rows is None:
                rows = self.rows.setdefault(record.entity, [])
            rows.append(Row(record, message))
            add_keys(record, found)
        taken = messages[:added]
        progress = self.progress[source]
        progress.last = taken[-1]
        progress.next = taken[-1].offset + 1
        progress.read += added
        progress.expired += expired
        progress.good += added - expired - (reject is not None)
        progress.newest_timestamp = max(progress.newest_timestamp, *map(_TIMESTAMP, taken))
        self.messages += added
        self.bytes += sum(sizes[:added])
        return added, reject

    def skip(
        self, source: TopicPartition, expected: int, end: int, gaps: tuple[OffsetGap, ...]
    ) -> None:
        """Advance a partition to its end, over offsets without messages. expected, gaps: as of
        add()."""
        progress = self.progress.setdefault(source, PartitionProgress(expected, expected))
        progress.gaps.extend(gaps)
        progress.next = end

    def arrange(self) -> None:
        """Sort rows and keys into the order of insertion: neighbours go to the same index pages,
        and two writers of the same rows do not deadlock. Versions of one entity stay in the order
        of arrival. Does nothing if the batch is sorted already."""
        if self._arranged == self.messages:
            return
        self._arranged = self.messages
        for rows in self.rows.values():
            rows.sort(key=_BY_ID)
        self.keys = self._new_keys.rows()

    def days(self) -> set[EntityDay]:
        """The days of the rows to store."""
        return {row.day for rows in self.rows.values() for row in rows}

    def admit(self, days: Container[EntityDay]) -> None:
        """Store the expired rows of these days after all."""
        good = [row for row in self.expired if row.day in days]
        self.expired = [row for row in self.expired if row.day not in days]
        for row in good:
            self.rows.setdefault(row.record.entity, []).append(row)
            self._new_keys.add(row.record)
            progress = self._progress_of(row)
            progress.expired, progress.good = progress.expired - 1, progress.good + 1
        if good:
            self._arranged = -1

    def expire(self, days: Container[EntityDay]) -> None:
        """Count the rows of these days as expired. Their business keys stay in the batch."""
        for row in self._remove(days):
            self.expired.append(row)
            progress = self._progress_of(row)
            progress.expired, progress.good = progress.expired + 1, progress.good - 1

    def refuse(self, day: EntityDay, why: str) -> None:
        """Quarantine the rows of a day."""
        self.unplaced += [
            Reject(row.message, Reason.NO_PARTITION, why) for row in self._remove({day})
        ]

    def _remove(self, days: Container[EntityDay]) -> list[Row]:
        removed: list[Row] = []
        for name, rows in list(self.rows.items()):
            removed += (row for row in rows if row.day in days)
            self.rows[name] = [row for row in rows if row.day not in days]
            if not self.rows[name]:
                del self.rows[name]
        return removed

    def _progress_of(self, row: Row) -> PartitionProgress:
        place = (row.message.topic, row.message.partition)
        return next(p for s, p in self.progress.items() if (s.topic, s.partition) == place)

    @property
    def fingerprints(self) -> Mapping[str, Fingerprint]:
        """By id, the fingerprint of the newest business keys in this batch."""
        return self._new_keys.fingerprints

    def clear(self) -> None:
        """Free the rows, a few at a time."""
        for rows in self.rows.values():
            while rows:
                del rows[-_FREED_AT_ONCE:]
        while self.expired:
            del self.expired[-_FREED_AT_ONCE:]

    def entities(self) -> list[str]:
        """Names of the kinds of entities with rows here, in the order of their declaration (so
        that two writers lock tables in the same order)."""
        return [name for name in BY_NAME if name in self.rows]


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to write one partition from next_offset on, until another consumer claims it with a
    higher epoch. resume_until: bad messages before it go to quarantine, whatever the limits are.
    reread_until: the quarantine has messages up to here; 0 if none. last: the message before
    next_offset, if known and still there."""

    source: TopicPartition
    epoch: int
    next_offset: int
    resume_until: int
    halted: bool
    reread_until: int = 0
    last: LastMessage | None = None


Claims = Mapping[TopicPartition, Claim]
# The end offset of each partition; None if it is not known.
Ends = Mapping[TopicPartition, int | None]
