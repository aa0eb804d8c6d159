"""Finds out the fate of one version or message: `trace_version` and `trace_message`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum, StrEnum
from typing import Any, NamedTuple

from django.db import connection

from history import timeline
from history.common.consumer_silence import Silence
from history.completeness import complete_to
from history.documents.record import UNSTORED_SPAN
from history.kinds.entities import EntityKind
from history.policy import need_to_know
from history.store import quarantine_queries
from history.store.blocks.codec import DamagedBlockError
from history.store.quarantined_messages import MessagePosition, QuarantinedMessage, VersionRange
from history.store.versions import EntityRef, VersionKey, VersionRef
from history.timeline import HistoryReader
from history.timeline.query import Absence


class FateState(StrEnum):
    """What became of a version or message."""

    STORED = "stored"
    REPEATED = "repeated"  # the same version was stored before
    EXPIRED = "expired"  # retention removed the version, or it came too late to be stored
    QUARANTINED = "quarantined"
    UNREAD = "unread"  # the broker has the message, and Annals has not read it yet
    LOST = "lost"  # the broker deleted the message before Annals read it
    DAMAGED = "damaged"  # the version is stored, but cannot be read
    UNKNOWN = "unknown"  # nothing shows that it ever existed


class FateCause(Enum):
    """Why a version or message has its state. Each cause has its own sentence in fate_texts.py."""

    STORED = FateState.STORED, "stored"
    STORED_FROM = FateState.STORED, "stored, the message is known"
    READ = FateState.STORED, "read and not noted as anything else"
    READ_BEFORE_NOTES = FateState.STORED, "read before unstored messages were noted"
    REPEATED = FateState.REPEATED, "repeated"
    TOO_OLD = FateState.EXPIRED, "older than retention when it was read"
    REMOVED = FateState.EXPIRED, "removed by retention"
    IN_QUARANTINE = FateState.QUARANTINED, "in quarantine"
    DISCARDED = FateState.QUARANTINED, "discarded in quarantine"
    UNREAD = FateState.UNREAD, "not read yet"
    LOST = FateState.LOST, "deleted by the broker before it was read"
    CANNOT_BE_READ = FateState.DAMAGED, "stored and cannot be read"
    NO_MESSAGE = FateState.UNKNOWN, "the offset has no message"
    NOT_SENT = FateState.UNKNOWN, "beyond the end of the partition"
    BEFORE_FIRST = FateState.UNKNOWN, "before the first offset that was read"
    NEVER_READ = FateState.UNKNOWN, "nothing is known of the partition"
    NEVER_SEEN = FateState.UNKNOWN, "never seen"
    ONLY_OLD = FateState.UNKNOWN, "never seen, but the old service has it"
    NEVER_THERE = FateState.UNKNOWN, "above the newest version"

    @property
    def state(self) -> FateState:
        """The state that this cause leads to."""
        return self.value[0]


class VersionName(NamedTuple):
    """The kind, id and number of a version."""

    entity: str
    id: str  # empty if the message in quarantine does not have a valid id
    version: int | None  # None if the message in quarantine does not have a valid version


class PossibleFates(NamedTuple):
    """How many messages of each fate might contain a version that Annals has never stored.

    All messages in the topics of the version's kind are counted, because Annals does not know which
    message contains the version.
    """

    unread: int | None  # how many are not read yet; None if not known
    lost: int  # how many the broker deleted before they were read
    expired: int  # how many were older than retention when they were read
    complete_to: datetime | None  # everything sent up to this moment was read; None if not known
    silence: Silence | None  # the silence to report for the topics; None if none is silent


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """The fate of one version or message, and the facts that show it."""

    cause: FateCause
    name: VersionName | None = None
    position: MessagePosition | None = None  # of the message with the version; None if not known
    at: datetime | None = None  # when this happened to the version or message; None if not known
    made_at: datetime | None = None  # updatedAt of a stored version
    settled_at: datetime | None = None  # when the message was stored or discarded from quarantine
    reason: str = ""  # why the message is in quarantine: the name of a member of ingest's Reason
    detail: str = ""  # the reason as a sentence
    certain: bool = True  # False if the message might have been repeated or expired
    may_be: PossibleFates | None = None  # only for a version that was never seen
    day: date | None = None  # the day of a damaged version

    @property
    def state(self) -> FateState:
        """The state of the version or message."""
        return self.cause.state


_SELECT_LATE_ROW = """
    SELECT topic, partition, "offset", noted_at FROM late_row
    WHERE "table" = %s AND day = %s AND row_id = %s AND version = %s ORDER BY id LIMIT 1
"""
_CAUSES_OF_RESOLVED = {
    "stored": FateCause.STORED_FROM,
    "repeated": FateCause.REPEATED,
    "expired": FateCause.TOO_OLD,
}
_SUMS = """
    SELECT coalesce(sum(lost), 0)::bigint, coalesce(sum(expired), 0)::bigint
    FROM ingest_ledger WHERE topic = ANY(%s)
"""


def trace_version(reader: HistoryReader, entity: EntityKind, id: str, number: int) -> Fate:
    """Find out the fate of a version. Runs up to nine queries.

    If the version is stored, its fate is `stored`, also if it was in quarantine before.

    Args:
        id: The id of the document. The caller has checked that it is a valid id.

    Raises:
        NeedToKnowError, RuleFailedError: See need_to_know.check_permitted.
    """
    name = VersionName(entity.name, id, number)
    try:
        return _trace_version(reader, entity, name, number)
    except DamagedBlockError as error:
        reader.viewer.access.note_read(reader.policy.check_visible(EntityRef(entity, id)))
        return Fate(cause=FateCause.CANNOT_BE_READ, name=name, day=error.day)


def _trace_version(
    reader: HistoryReader, entity: EntityKind, name: VersionName, number: int
) -> Fate:
    id = name.id
    keys = timeline.fetch_keys(reader.hide_old_service(), entity, [id]).get(id, [])
    is_answered = bool(keys) or reader.shown_old_service.load_shown_timeline(entity, id)
    reader.viewer.access.note_read(reader.policy.check_visible(EntityRef(entity, id)))
    if not is_answered:
        need_to_know.refuse_undecided(reader.viewer)
    keys_with_number = [key for key in keys if key.version == number]
    if keys_with_number:
        # Raises an error if the version is damaged.
        ref = VersionRef(entity, id, keys_with_number[-1])
        timeline.fetch_all_versions(reader.hide_old_service(), [ref])
        return _make_stored_fate(reader, entity, name, keys_with_number[-1])
    versions = VersionRange(id, number, number)
    message = timeline.find_quarantined(reader, entity, [versions]).get(id, {}).get(number)
    if message is not None:
        return make_quarantined_fate(message)
    resolved_message = timeline.find_resolved(reader, entity, id, number)
    if resolved_message is not None or _was_removed(reader, entity, id, number):
        position, moment = (
            (resolved_message.position, resolved_message.settled_at)
            if resolved_message
            else (None, None)
        )
        return Fate(cause=FateCause.REMOVED, name=name, position=position, at=moment)
    old_numbers = {key.version for key in reader.list_old_keys(entity, id)}
    if number in old_numbers:
        return Fate(cause=FateCause.ONLY_OLD, name=name)
    is_above_newest = bool(keys) and number > max((*old_numbers, *(key.version for key in keys)))
    return Fate(
        cause=FateCause.NEVER_THERE if is_above_newest else FateCause.NEVER_SEEN,
        name=name,
        may_be=_find_possible_fates(entity),
    )


def make_quarantined_fate(message: QuarantinedMessage) -> Fate:
    """Make the fate of a message that is or was in quarantine."""
    cause, settled_at = FateCause.IN_QUARANTINE, None
    if message.status == "discarded":
        cause = FateCause.DISCARDED
    elif message.status == "resolved":
        cause, settled_at = (
            _CAUSES_OF_RESOLVED.get(message.outcome, FateCause.READ),
            message.settled_at,
        )
    is_in_quarantine = cause.state is FateState.QUARANTINED
    return Fate(
        cause=cause,
        name=VersionName(message.entity, message.id, message.version),
        position=message.position,
        at=settled_at or message.came_at,
        settled_at=message.settled_at,
        reason=message.reason if is_in_quarantine else "",
        detail=message.detail if is_in_quarantine else "",
        certain=cause is not FateCause.READ,
    )


def _make_stored_fate(
    reader: HistoryReader, entity: EntityKind, name: VersionName, key: VersionKey
) -> Fate:
    """Make the fate of a stored version.

    The fate names the message that brought the version only if Annals has noted this message: if
    the version entered a sealed day, or if the message was in quarantine first.
    """
    position, moment = _find_late_row(entity, name, key)
    if position is None and name.version is not None:
        message = timeline.find_resolved(reader, entity, name.id, name.version)
        if message is not None and message.outcome == "stored":
            position, moment = message.position, message.settled_at
    return Fate(
        cause=FateCause.STORED if position is None else FateCause.STORED_FROM,
        name=name,
        position=position,
        at=moment,
        made_at=key.updated_at,
    )


def _find_late_row(
    entity: EntityKind, name: VersionName, key: VersionKey
) -> tuple[MessagePosition | None, datetime | None]:
    with connection.cursor() as cursor:
        day = key.updated_at.date()
        cursor.execute(_SELECT_LATE_ROW, [entity.table, day, name.id, name.version])
        row = cursor.fetchone()
    return (MessagePosition(*row[:3]), row[3]) if row else (None, None)


def _was_removed(reader: HistoryReader, entity: EntityKind, id: str, number: int) -> bool:
    """Return whether retention removed this version from the tables.

    The archive can still have the version.
    """
    try:
        timeline.fetch_version(reader, entity, id, number, frozenset())
    except timeline.NotFoundError as error:
        return error.reason in (Absence.REMOVED, Absence.ARCHIVED)
    return False


def _find_possible_fates(entity: EntityKind) -> PossibleFates:
    state = complete_to.read_completeness([entity])
    with connection.cursor() as cursor:
        cursor.execute(_SUMS, [list(entity.topics)])
        lost, expired = cursor.fetchone() or (0, 0)
    return PossibleFates(state.lag_messages, lost, expired, state.complete_to, state.silence)


_LEDGER = """
    SELECT topic_id, first_offset, next_offset, high_watermark, checked_at,
        repeated + expired + skipped + quarantine_removed > 0, noted_from
    FROM ingest_ledger WHERE topic = %(topic)s AND partition = %(partition)s
        AND (%(topic_id)s = '' OR split_part(topic_id, '#', 1) = %(topic_id)s)
    ORDER BY checked_at DESC, topic_id DESC LIMIT 1
"""
_GAP = """
    SELECT lost, noticed_at FROM ingest_gap
    WHERE topic = %s AND topic_id = %s AND partition = %s
        AND start_offset <= %s AND end_offset > %s ORDER BY noticed_at DESC LIMIT 1
"""
_UNSTORED = """
    SELECT repeated, expired, skipped, noted_at FROM ingest_unstored
    WHERE topic = %s AND topic_id = %s AND partition = %s
        AND end_offset > %s AND end_offset <= %s AND start_offset <= %s
    ORDER BY noted_at DESC, id DESC
"""
_UNSTORED_CAUSES = (FateCause.REPEATED, FateCause.TOO_OLD, FateCause.NO_MESSAGE)


class BrokerBounds(NamedTuple):
    """The first offset and the end offset of a topic partition at the broker."""

    first_offset: int
    end_offset: int  # the offset after the last message
    topic_id: str = ""  # the id that the broker gave to the topic; empty if not known


class _ReadRange(NamedTuple):
    """What the ledger says about a topic partition: which offsets the consumer has read."""

    topic_id: str
    first: int  # the first offset that was read
    next: int  # the offset that will be read next
    end: int | None  # the end offset at the broker; None if not known
    checked_at: datetime  # when a consumer last reported
    # whether some offsets that were read have neither a stored version nor a message in quarantine
    some_unstored: bool
    noted_from: int  # ingest_unstored has all such offsets from this one on


def trace_message(position: MessagePosition, broker: BrokerBounds | None = None) -> Fate:
    """Find out the fate of a message. Runs up to four queries.

    If the topic was deleted and created again, the message is looked up in the new topic.

    Args:
        broker: The bounds at the broker. None: use the end offset that the consumer noted last.
    """
    topic_id = broker.topic_id if broker else ""
    row = _fetch_one(_LEDGER, {**position._asdict(), "topic_id": topic_id})
    read_range = _ReadRange(*row) if row else None
    if read_range is None or position.offset >= read_range.next:
        return _make_ahead_fate(position, read_range, broker)
    if position.offset < read_range.first:
        return Fate(cause=FateCause.BEFORE_FIRST, position=position)
    partition_values = [position.topic, read_range.topic_id, position.partition]
    message = quarantine_queries.find_by_offset(
        position.topic, read_range.topic_id, position.partition, position.offset
    )
    if message is not None and message.outcome != "read again":
        return make_quarantined_fate(message)
    gap = _fetch_one(_GAP, [*partition_values, position.offset, position.offset])
    if gap is not None:
        return Fate(
            cause=FateCause.LOST if gap[0] else FateCause.NO_MESSAGE, position=position, at=gap[1]
        )
    return _find_unstored_fate(position, partition_values) or _make_read_fate(position, read_range)


def _make_ahead_fate(
    position: MessagePosition, read_range: _ReadRange | None, broker: BrokerBounds | None
) -> Fate:
    """Make the fate of a message that the consumer has not reached."""
    cause, moment = FateCause.NOT_SENT, read_range.checked_at if read_range else None
    end = broker.end_offset if broker else read_range.end if read_range else None
    if broker and position.offset < broker.first_offset:
        cause = FateCause.LOST
    elif end is not None and position.offset < end:
        cause = FateCause.UNREAD
    elif end is None:
        cause = FateCause.NEVER_READ
    return Fate(cause=cause, position=position, at=None if broker else moment)


def _find_unstored_fate(position: MessagePosition, partition_values: Sequence[Any]) -> Fate | None:
    with connection.cursor() as cursor:
        cursor.execute(
            _UNSTORED,
            [*partition_values, position.offset, position.offset + UNSTORED_SPAN, position.offset],
        )
        for *bounds_by_cause, noted_at in cursor.fetchall():
            for cause, bounds in zip(_UNSTORED_CAUSES, bounds_by_cause, strict=True):
                if _is_within(bounds, position.offset):
                    return Fate(cause=cause, position=position, at=noted_at)
    return None


def _make_read_fate(position: MessagePosition, read_range: _ReadRange) -> Fate:
    """Make the fate of a message that was read and is neither in quarantine nor in ingest_unstored.

    The fate is "stored", because a message that is not stored is noted in one of these tables. For
    offsets below `noted_from` such a note can be missing. There the fate is uncertain if the topic
    partition has messages that were not stored.
    """
    is_certain = not read_range.some_unstored or position.offset >= read_range.noted_from
    cause = FateCause.READ if is_certain else FateCause.READ_BEFORE_NOTES
    return Fate(cause=cause, position=position, certain=is_certain)


def _is_within(bounds: Sequence[int], offset: int) -> bool:
    """Return whether an offset is in one of several ranges of offsets.

    Args:
        bounds: The start and the end of the first range, of the second one, and so on. An end does
            not belong to its range.
    """
    return any(start <= offset < end for start, end in zip(bounds[::2], bounds[1::2], strict=True))


def _fetch_one(statement: str, values: Sequence[Any] | Mapping[str, Any]) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchone()
