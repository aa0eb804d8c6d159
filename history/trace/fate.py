"""What is known of one version or message, and how it is found out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum, StrEnum
from typing import Any, NamedTuple

from django.db import connection

from history import complete_to, need_to_know, quarantined, timeline
from history.base.silence import Silence
from history.blocks.form import DamagedBlockError
from history.entities import Entity
from history.held_messages import MessagePlace, Quarantined
from history.record import UNSTORED_SPAN
from history.timeline import Reader
from history.timeline.query import Absence
from history.versions import Key


class State(StrEnum):
    """What became of it. repeated: the same version was stored before. expired: retention removed
    it, or it came too late to be stored. unread: the broker has it. lost: the broker deleted it
    before it was read. damaged: stored, and cannot be read. unknown: nothing shows that it was ever
    there."""

    STORED = "stored"
    REPEATED = "repeated"
    EXPIRED = "expired"
    QUARANTINED = "quarantined"
    UNREAD = "unread"
    LOST = "lost"
    DAMAGED = "damaged"
    UNKNOWN = "unknown"


class How(Enum):
    """Tells the ways apart in which a state comes about; each has its sentence."""

    STORED = State.STORED, "stored"
    STORED_FROM = State.STORED, "stored, the message is known"
    READ = State.STORED, "read and not noted as anything else"
    READ_BEFORE_NOTES = State.STORED, "read before such offsets were noted"
    REPEATED = State.REPEATED, "repeated"
    TOO_OLD = State.EXPIRED, "older than retention when it was read"
    REMOVED = State.EXPIRED, "removed by retention"
    IN_QUARANTINE = State.QUARANTINED, "in quarantine"
    DISCARDED = State.QUARANTINED, "discarded in quarantine"
    UNREAD = State.UNREAD, "not read yet"
    LOST = State.LOST, "deleted by the broker before it was read"
    CANNOT_BE_READ = State.DAMAGED, "stored and cannot be read"
    NO_MESSAGE = State.UNKNOWN, "the offset has no message"
    NOT_SENT = State.UNKNOWN, "beyond the end of the partition"
    BEFORE_FIRST = State.UNKNOWN, "before the first offset that was read"
    NEVER_READ = State.UNKNOWN, "nothing is known of the partition"
    NEVER_SEEN = State.UNKNOWN, "never seen"
    ONLY_OLD = State.UNKNOWN, "never seen, but the old service has it"
    NEVER_THERE = State.UNKNOWN, "above the newest version"

    @property
    def state(self) -> State:
        """The state that comes about."""
        return self.value[0]


class Name(NamedTuple):
    """A version. version: None where a message does not say it; id: empty where it does not."""

    entity: str
    id: str
    version: int | None


class MayBe(NamedTuple):
    """Of a version that was never seen: messages of its topics among which it may be. unread: None
    if their number is not known. complete_to: what was sent before was read. silence: who does not
    answer about its topics."""

    unread: int | None
    lost: int
    expired: int
    complete_to: datetime | None
    silence: Silence | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """at: when this became so; None if not known. place: the message that brought it, if known.
    made_at: the version's updatedAt, where stored. settled_at: when it was discarded. reason: why
    it is in quarantine, a member of ingest's Reason; detail: the same as a sentence. certain: False
    if it may also have been repeated or expired. day: the one of which versions cannot be read."""

    how: How
    name: Name | None = None
    place: MessagePlace | None = None
    at: datetime | None = None
    made_at: datetime | None = None
    settled_at: datetime | None = None
    reason: str = ""
    detail: str = ""
    certain: bool = True
    may_be: MayBe | None = None
    day: date | None = None

    @property
    def state(self) -> State:
        """What became of it."""
        return self.how.state


_LATE = """
    SELECT topic, partition, "offset", noted_at FROM late_row
    WHERE "table" = %s AND day = %s AND row_id = %s AND version = %s ORDER BY id LIMIT 1
"""
_RESOLVED = {"stored": How.STORED_FROM, "repeated": How.REPEATED, "expired": How.TOO_OLD}
_SUMS = """
    SELECT coalesce(sum(lost), 0)::bigint, coalesce(sum(expired), 0)::bigint
    FROM ingest_ledger WHERE topic = ANY(%s)
"""


def of_version(reader: Reader, entity: Entity, id: str, number: int) -> Fate:
    """What became of a version. What is stored is `stored`, whatever else happened. id: one that an
    entity can have. Up to nine queries. Raises what need_to_know.permit raises."""
    name = Name(entity.name, id, number)
    try:
        return _of_version(reader, entity, name)
    except DamagedBlockError as error:
        reader.viewer.look.read(reader.confine((entity, id)))
        return Fate(how=How.CANNOT_BE_READ, name=name, day=error.day)


def _of_version(reader: Reader, entity: Entity, name: Name) -> Fate:
    _, id, number = name
    assert number is not None  # of a version it is known  # noqa: S101
    keys = reader.without_old_service().keys(entity, [id]).get(id, [])
    answered = bool(keys) or reader.shown_old.want(entity, id)
    reader.viewer.look.read(reader.confine((entity, id)))
    if not answered:
        need_to_know.undecided(reader.viewer)
    there = [key for key in keys if key.version == number]
    if there:
        reader.without_old_service().bodies([(entity, id, there[-1])])  # whether it can be read
        return _stored(reader, entity, name, there[-1])
    held = reader.came(entity, [(id, number, number)]).get(id, {}).get(number)
    if held is not None:
        return quarantined_fate(held)
    before = reader.left_quarantine(entity, id, number)
    if before is not None or _removed(reader, entity, id, number):
        place, at = (before.place, before.settled_at) if before else (None, None)
        return Fate(how=How.REMOVED, name=name, place=place, at=at)
    theirs = {key.version for key in reader.old_keys(entity, id)}
    if number in theirs:
        return Fate(how=How.ONLY_OLD, name=name)
    never = bool(keys) and number > max((*theirs, *(key.version for key in keys)))
    return Fate(
        how=How.NEVER_THERE if never else How.NEVER_SEEN,
        name=name,
        may_be=_may_be(entity),
    )


def quarantined_fate(held: Quarantined) -> Fate:
    """The fate of a message that is or was in quarantine."""
    how, settled = How.IN_QUARANTINE, None
    if held.status == "discarded":
        how = How.DISCARDED
    elif held.status == "resolved":
        how, settled = _RESOLVED.get(held.outcome, How.READ), held.settled_at
    held_still = how.state is State.QUARANTINED
    return Fate(
        how=how,
        name=Name(held.entity, held.id, held.version),
        place=held.place,
        at=settled or held.came_at,
        settled_at=held.settled_at,
        reason=held.reason if held_still else "",
        detail=held.detail if held_still else "",
        certain=how is not How.READ,
    )


def _stored(reader: Reader, entity: Entity, name: Name, key: Key) -> Fate:
    """A stored version. Which message brought it is known of rows that entered a sealed day, and of
    those that were in quarantine first."""
    place, at = _late(entity, name, key)
    if place is None and name.version is not None:
        first = reader.left_quarantine(entity, name.id, name.version)
        if first is not None and first.outcome == "stored":
            place, at = first.place, first.settled_at
    return Fate(
        how=How.STORED if place is None else How.STORED_FROM,
        name=name,
        place=place,
        at=at,
        made_at=key.updated_at,
    )


def _late(entity: Entity, name: Name, key: Key) -> tuple[MessagePlace | None, datetime | None]:
    with connection.cursor() as cursor:
        day = key.updated_at.date()
        cursor.execute(_LATE, [entity.table, day, name.id, name.version])
        row = cursor.fetchone()
    return (MessagePlace(*row[:3]), row[3]) if row else (None, None)


def _removed(reader: Reader, entity: Entity, id: str, number: int) -> bool:
    """Whether the rest of the entity shows that the store had it and retention removed it."""
    try:
        timeline.version(reader, entity, id, number, frozenset())
    except timeline.NotFoundError as error:
        return error.why in (Absence.REMOVED, Absence.ARCHIVED)
    return False


def _may_be(entity: Entity) -> MayBe:
    state = complete_to.read([entity])
    with connection.cursor() as cursor:
        cursor.execute(_SUMS, [list(entity.topics)])
        lost, expired = cursor.fetchone() or (0, 0)
    return MayBe(state.lag_messages, lost, expired, state.complete_to, state.silence)


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
_OUTCOMES = (How.REPEATED, How.TOO_OLD, How.NO_MESSAGE)


class Bounds(NamedTuple):
    """The first offset of a partition at the broker and its end. topic_id: of the topic at the
    broker; empty if that is not known."""

    low: int
    end: int
    topic_id: str = ""


class _Read(NamedTuple):
    """How far the partition was read. some_unstored: of some messages that did not become a row,
    that is not known from anything else than `ingest_unstored`."""

    topic_id: str
    first: int
    next: int
    end: int | None
    checked_at: datetime
    some_unstored: bool
    noted_from: int


def of_message(place: MessagePlace, broker: Bounds | None = None) -> Fate:
    """What became of a message of the topic as it is now. broker: what the broker has of its
    partition; without it the end that the consumer recorded last. Up to four queries."""
    topic_id = broker.topic_id if broker else ""
    row = _one(_LEDGER, {**place._asdict(), "topic_id": topic_id})
    read = _Read(*row) if row else None
    if read is None or place.offset >= read.next:
        return _ahead(place, read, broker)
    if place.offset < read.first:
        return Fate(how=How.BEFORE_FIRST, place=place)
    of = [place.topic, read.topic_id, place.partition]
    held = quarantined.at(place.topic, read.topic_id, place.partition, place.offset)
    if held is not None and held.outcome != "read again":
        return quarantined_fate(held)
    gap = _one(_GAP, [*of, place.offset, place.offset])
    if gap is not None:
        return Fate(how=How.LOST if gap[0] else How.NO_MESSAGE, place=place, at=gap[1])
    return _unstored(place, of) or _stored_from(place, read)


def _ahead(place: MessagePlace, read: _Read | None, broker: Bounds | None) -> Fate:
    """A message that the consumer has not come to."""
    how, at = How.NOT_SENT, read.checked_at if read else None
    end = broker.end if broker else read.end if read else None
    if broker and place.offset < broker.low:
        how = How.LOST
    elif end is not None and place.offset < end:
        how = How.UNREAD
    elif end is None:
        how = How.NEVER_READ
    return Fate(how=how, place=place, at=None if broker else at)


def _unstored(place: MessagePlace, of: Sequence[Any]) -> Fate | None:
    with connection.cursor() as cursor:
        cursor.execute(_UNSTORED, [*of, place.offset, place.offset + UNSTORED_SPAN, place.offset])
        for *kinds, noted_at in cursor.fetchall():
            for how, runs in zip(_OUTCOMES, kinds, strict=True):
                if _within(runs, place.offset):
                    return Fate(how=how, place=place, at=noted_at)
    return None


def _stored_from(place: MessagePlace, read: _Read) -> Fate:
    """What was read and is nothing else was stored. Of earlier offsets that is not certain."""
    certain = not read.some_unstored or place.offset >= read.noted_from
    how = How.READ if certain else How.READ_BEFORE_NOTES
    return Fate(how=how, place=place, certain=certain)


def _within(runs: Sequence[int], offset: int) -> bool:
    """runs: starts and ends in turn."""
    return any(start <= offset < end for start, end in zip(runs[::2], runs[1::2], strict=True))


def _one(statement: str, values: Sequence[Any] | Mapping[str, Any]) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchone()
