"""A batch: the rows and bad messages of one transaction, and the progress of each partition."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from operator import attrgetter

import msgspec

from history.documents.record import Record
from history.kinds.entities import BY_NAME
from history.store.days.window import compute_day
from history.store.search_index.keys import (
    NONE_KNOWN,
    KeyFingerprint,
    KnownFingerprints,
    NewSearchKeys,
    SearchKeyRow,
)
from ingest.messages.decode import DecodedMessage
from ingest.messages.explanations import Explanation
from ingest.messages.message import KafkaMessage, TopicPartition
from ingest.messages.rejection import Reason

GIANT_BYTES = 128 * 1024
_FREED_AT_ONCE = 100
_BY_ID = attrgetter("record.id")

# The name of a kind and a UTC day. Together they name a partition of a table.
EntityDay = tuple[str, date]


@dataclass(frozen=True, slots=True)
class Limits:
    """The size at which a batch is full."""

    rows: int
    bytes: int


class DecodedRow(msgspec.Struct, frozen=True, gc=False):
    """A good record with the message that it came from."""

    record: Record
    message: KafkaMessage

    @property
    def day(self) -> EntityDay:
        return self.record.entity, compute_day(self.record.updated_at)


class BadMessage(msgspec.Struct, frozen=True, gc=False):
    """A message for the quarantine, with the reason and its explanation."""

    message: KafkaMessage
    reason: Reason
    explanation: Explanation


class OffsetGap(msgspec.Struct, frozen=True, gc=False):
    """Offsets [start, end) that the broker did not deliver."""

    start: int
    end: int
    lost: bool  # True: the broker deleted unread messages; False: there never were messages


@dataclass(slots=True)
class PartitionProgress:
    """How a batch advances one partition: from offset `start` to `next`, with message counts."""

    start: int
    next: int
    read: int = 0
    good: int = 0  # messages that are neither bad nor expired, including repeated messages
    expired: int = 0
    newest_timestamp: int = -1
    gaps: list[OffsetGap] = field(default_factory=list)
    last: KafkaMessage | None = field(default=None, compare=False)  # the last message that was read


class Batch:
    """The messages that one transaction writes. Their number and size are limited.

    A message larger than GIANT_BYTES is a giant. A batch has either only giants or no giant.
    The attribute `progress` lists the offsets that are missing between messages, as gaps.

    Args:
        known: Fingerprints of stored search keys. Equal search keys are not stored again.
    """

    def __init__(self, limits: Limits, known: KnownFingerprints = NONE_KNOWN) -> None:
        self._limits = limits
        self._new_keys = NewSearchKeys(known)
        # How many messages the batch had when it was last sorted; -1: it must be sorted again.
        self._arranged_count = 0
        self._giant = False
        self.bytes = 0
        self.messages = 0
        self.rows: dict[str, list[DecodedRow]] = {}  # by kind of entity
        self.keys: list[SearchKeyRow] = []  # search keys with their newest day; set by arrange
        self.expired: list[DecodedRow] = []  # older than the window
        self.bad_messages: list[BadMessage] = []  # messages that break the contract
        # Messages without a record, such as tombstones. When the batch is written, messages with
        # versions that were stored before are added.
        self.repeated: list[KafkaMessage] = []
        # Messages with versions of days for which no partition can be created.
        self.unplaced: list[BadMessage] = []
        self.progress: dict[TopicPartition, PartitionProgress] = {}

    def fits(self, size: int) -> bool:
        """Return whether a message of `size` bytes still fits. An empty batch takes any message."""
        if not self.messages:
            return True
        return (
            self.messages < self._limits.rows
            and self.bytes + size <= self._limits.bytes
            and (size > GIANT_BYTES) is self._giant
        )

    def add(
        self,
        decoded: DecodedMessage,
        topic_partition: TopicPartition,
        expected: int,
        gaps: tuple[OffsetGap, ...] = (),
    ) -> BadMessage | None:
        """Add one message. Return it as a bad message if it breaks the contract.

        Args:
            expected: The next offset of the partition.
            gaps: The missing offsets from `expected` up to the message.
        """
        self._get_progress(topic_partition, expected).gaps.extend(gaps)
        return self._add_decoded([decoded], topic_partition)[1]

    def add_many(
        self,
        decoded_messages: Sequence[DecodedMessage],
        topic_partition: TopicPartition,
        expected: int,
        may_skip: bool = False,
    ) -> tuple[int, BadMessage | None]:
        """Add the first messages of a sequence, while they fit and are of `topic_partition`.

        Adding stops after the first message that breaks the contract. It is added as a bad message.

        Args:
            expected: The next offset of the partition.
            may_skip: True: missing offsets certainly never held messages, so they are skipped.
                False: adding stops before the first missing offset.

        Returns:
            How many messages were added, and the last of them if it is bad.
        """
        fitting = self._count_fitting(decoded_messages, topic_partition, expected, may_skip)
        if not fitting:
            return 0, None
        gaps = self._get_progress(topic_partition, expected).gaps
        added, bad_message = self._add_decoded(decoded_messages[:fitting], topic_partition)
        if decoded_messages[added - 1].message.offset != expected + added - 1:
            for decoded in decoded_messages[:added]:
                offset = decoded.message.offset
                if offset > expected:
                    gaps.append(OffsetGap(expected, offset, lost=False))
                expected = offset + 1
        return added, bad_message

    def _get_progress(self, topic_partition: TopicPartition, expected: int) -> PartitionProgress:
        progress = self.progress.get(topic_partition)
        if progress is None:
            progress = self.progress[topic_partition] = PartitionProgress(expected, expected)
        return progress

    def _count_fitting(
        self,
        decoded_messages: Sequence[DecodedMessage],
        topic_partition: TopicPartition,
        expected: int,
        may_skip: bool,
    ) -> int:
        """Return how many messages at the start of the sequence can be added. See `add_many`."""
        topic, number = topic_partition.topic, topic_partition.partition
        room = max(0, self._limits.rows - self.messages)
        if not self.messages:
            room = max(1, room)  # an empty batch takes any message
        room_bytes = self._limits.bytes - self.bytes
        giant, count = self._giant, 0
        for decoded in decoded_messages[:room]:
            message, size = decoded.message, decoded.size
            offset = message.offset
            if (
                (offset != expected and (offset < expected or not may_skip))
                or message.partition != number
                or message.topic != topic
            ):
                break
            expected = offset + 1
            room_bytes -= size
            if not count and not self.messages:
                giant = size > GIANT_BYTES
            elif room_bytes < 0 or (size > GIANT_BYTES) is not giant:
                break
            count += 1
        return count

    def _add_decoded(
        self, decoded_messages: Sequence[DecodedMessage], topic_partition: TopicPartition
    ) -> tuple[int, BadMessage | None]:
        """Add messages of one partition, up to and including the first that breaks the contract.

        Returns:
            How many messages were added, and the last of them if it is bad.
        """
        if not self.messages:
            self._giant = decoded_messages[0].size > GIANT_BYTES
        add_keys, rows, bad_message = self._new_keys.add_record, None, None
        added = expired = size = 0
        newest_timestamp = -1
        for decoded in decoded_messages:
            added += 1
            message, record = decoded.message, decoded.record
            size += decoded.size
            newest_timestamp = max(newest_timestamp, message.timestamp)
            if record is None:
                if decoded.reason is None or decoded.explanation is None:
                    self.repeated.append(message)
                    continue
                bad_message = BadMessage(message, decoded.reason, decoded.explanation)
                self.bad_messages.append(bad_message)
                break
            if decoded.is_expired:
                expired += 1
                self.expired.append(DecodedRow(record, message))
                continue
            if rows is None:
                rows = self.rows.setdefault(record.entity, [])
            rows.append(DecodedRow(record, message))
            add_keys(record, decoded.search_keys)
        last = decoded_messages[added - 1].message
        progress = self.progress[topic_partition]
        progress.last = last
        progress.next = last.offset + 1
        progress.read += added
        progress.expired += expired
        progress.good += added - expired - (bad_message is not None)
        progress.newest_timestamp = max(progress.newest_timestamp, newest_timestamp)
        self.messages += added
        self.bytes += size
        return added, bad_message

    def skip(
        self, topic_partition: TopicPartition, expected: int, end: int, gaps: tuple[OffsetGap, ...]
    ) -> None:
        """Advance a partition to `end`. Call it if no message is left before this offset.

        Args:
            expected: The next offset of the partition.
            gaps: The missing offsets from `expected` up to `end`.
        """
        progress = self.progress.setdefault(topic_partition, PartitionProgress(expected, expected))
        progress.gaps.extend(gaps)
        progress.next = end

    def arrange(self) -> None:
        """Sort rows and search keys by id, if they are not sorted already.

        PostgreSQL then inserts the rows into neighbouring pages of the indexes, and two writers of
        the same rows do not deadlock. Versions of a document stay in the order of arrival.
        """
        if self._arranged_count == self.messages:
            return
        self._arranged_count = self.messages
        for rows in self.rows.values():
            rows.sort(key=_BY_ID)
        self.keys = self._new_keys.list_rows()

    def get_days(self) -> set[EntityDay]:
        """Return the days of the rows to store."""
        return {row.day for rows in self.rows.values() for row in rows}

    def accept_expired(self, days: Container[EntityDay]) -> None:
        """Accept the expired rows of these days: add them to the rows to store."""
        good = [row for row in self.expired if row.day in days]
        self.expired = [row for row in self.expired if row.day not in days]
        for row in good:
            self.rows.setdefault(row.record.entity, []).append(row)
            self._new_keys.add_record(row.record)
            progress = self._find_progress(row)
            progress.expired, progress.good = progress.expired - 1, progress.good + 1
        if good:
            self._arranged_count = -1

    def expire(self, days: Container[EntityDay]) -> None:
        """Count the rows of these days as expired. Their search keys stay in the batch."""
        for row in self._remove_days(days):
            self.expired.append(row)
            progress = self._find_progress(row)
            progress.expired, progress.good = progress.expired + 1, progress.good - 1

    def refuse(self, day: EntityDay, explanation: Explanation) -> None:
        """Move the rows of a day to `unplaced`, because the day's partition cannot be created."""
        self.unplaced += [
            BadMessage(row.message, Reason.NO_PARTITION, explanation)
            for row in self._remove_days({day})
        ]

    def _remove_days(self, days: Container[EntityDay]) -> list[DecodedRow]:
        removed: list[DecodedRow] = []
        for name, rows in list(self.rows.items()):
            removed += (row for row in rows if row.day in days)
            self.rows[name] = [row for row in rows if row.day not in days]
            if not self.rows[name]:
                del self.rows[name]
        return removed

    def _find_progress(self, row: DecodedRow) -> PartitionProgress:
        partition = (row.message.topic, row.message.partition)
        return next(progress for key, progress in self.progress.items() if key.kafka == partition)

    @property
    def fingerprints(self) -> Mapping[str, KeyFingerprint]:
        """Maps the id of a document to the fingerprint of the search keys that were added last."""
        return self._new_keys.fingerprints

    def clear(self) -> None:
        """Free the memory of the rows in small steps, so that other threads can run in between."""
        for rows in self.rows.values():
            while rows:
                del rows[-_FREED_AT_ONCE:]
        while self.expired:
            del self.expired[-_FREED_AT_ONCE:]

    def list_entities(self) -> list[str]:
        """Return the kinds with rows in this batch, in the order of their declaration.

        All writers lock tables in this order, so that they do not deadlock.
        """
        return [name for name in BY_NAME if name in self.rows]
