"""Reads the ledger, finds its faults, and makes the figures that commands and the API show.

Begin with `load_entries`.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from django.db import transaction
from django.db.models import Count, F, IntegerField, OuterRef, Subquery, Value
from django.db.models.functions import Coalesce
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from msgspec import Meta

from history.common import clock
from history.common.answer_types import Answer, Moment
from history.common.answer_types import Count as MessageCount
from history.common.consumer_silence import find_silence
from history.kinds.entities import BY_TOPIC
from ingest.completeness.losses import LossEntry
from ingest.messages.message import TopicPartition
from ingest.models import AskedTopic, Gap, Ledger, Quarantined, RetiredTopic


def load_entries(count_quarantine: bool = True) -> list[Ledger]:
    """Return the rows of the ledger, ordered by topic and partition.

    A topic partition has several rows, the oldest first, if its topic was deleted and created
    again, or if its log was truncated.

    Args:
        count_quarantine: Whether `in_quarantine` of each row is set. This takes time: the messages
            in the table of the quarantine are counted, except those that were stored later.
    """
    key = ("topic", "topic_id", "partition")
    counted_messages = (
        Quarantined.objects.exclude(status=Quarantined.Status.RESOLVED)
        .filter(**{name: OuterRef(name) for name in key})
        # While a topic is read again, the ledger counts only offsets that were read again.
        .filter(offset__gte=OuterRef("first_offset"), offset__lt=OuterRef("next_offset"))
        .order_by()
        .values(*key)
        .annotate(count=Count("id"))
        .values("count")
    )
    # One statement reads ledger and quarantine at one moment, because a batch changes both.
    quarantine_count = Coalesce(Subquery(counted_messages), 0) + F("quarantine_removed")
    count = quarantine_count if count_quarantine else Value(None, IntegerField())
    reason = RetiredTopic.objects.filter(topic=OuterRef("topic")).values("why")
    annotated = Ledger.objects.annotate(
        quarantine_count=count, retirement=Coalesce(Subquery(reason), Value(""))
    )
    now, rows = clock.now(), list(annotated.order_by("topic", "partition", "checked_at"))
    newest_ids = {(row.topic, row.partition): row.topic_id for row in rows}
    keys = {(row.topic, row.topic_id, row.partition) for row in rows}
    for row in rows:
        row.current = newest_ids[row.topic, row.partition] == row.topic_id
        row.in_quarantine, row.retired = row.quarantine_count, row.retirement
        is_awaited = row.current and not row.retired
        row.silence = find_silence(row.checked_at, row.end_known_at, now) if is_awaited else None
        row.log_cut = (row.topic, _get_topic_id_after_truncation(row), row.partition) in keys
    return [*rows]


def _get_topic_id_after_truncation(row: Ledger) -> str:
    """Return the topic id that the partition will have in the ledger if its log is truncated."""
    return TopicPartition(row.topic, row.topic_id, row.partition).make_successor().topic_id


def load_retired_topics() -> dict[str, RetiredTopic]:
    """Return the topics that are declared finished, by name."""
    return {
        retired_topic.topic: retired_topic
        for retired_topic in RetiredTopic.objects.order_by("topic")
    }


def find_never_read_topics(entries: Sequence[Ledger]) -> list[str]:
    """Return the declared topics that may have messages and were never read.

    They have no row in the ledger, and are neither retired nor absent (see `find_absent_topics`).
    """
    read = {entry.topic for entry in entries}
    excluded = {*load_retired_topics(), *find_absent_topics(entries)}
    return [topic for topic in BY_TOPIC if topic not in read and topic not in excluded]


def find_absent_topics(entries: Sequence[Ledger]) -> dict[str, datetime]:
    """Return the topics that were never read because the brokers say that they do not exist.

    Retired topics are left out.

    Returns:
        By topic, the moment at which a consumer last asked the brokers.
    """
    asked_at = dict(AskedTopic.objects.filter(absent=True).values_list("topic", "asked_at"))
    absent_topics = (
        asked_at.keys()
        & BY_TOPIC.keys() - {entry.topic for entry in entries} - load_retired_topics().keys()
    )
    return {topic: asked_at[topic] for topic in BY_TOPIC if topic in absent_topics}


def find_unexpectedly_absent_topics(entries: Sequence[Ledger]) -> list[str]:
    """Return the absent topics that should exist: all except migration topics."""
    return [topic for topic in find_absent_topics(entries) if topic == BY_TOPIC[topic].topics[0]]


def find_undeclared_topics(entries: Sequence[Ledger]) -> list[str]:
    """Return the topics that were read earlier and that no kind declares now.

    Retired topics are left out.
    """
    current = {entry.topic for entry in entries if entry.current and not entry.retired}
    return sorted(current - BY_TOPIC.keys())


def find_faults(entries: Sequence[Ledger]) -> list[str]:
    """Return a sentence for each fault of a topic partition, in the active language.

    A fault is one of these: the counts of the ledger do not add up, they differ from the
    quarantine, or a loss is not acknowledged.
    """
    sentences = []
    for entry in entries:
        where = f"{entry.topic}[{entry.partition}]"
        if entry.read != entry.settled:
            text = _(
                "{where}: {read} read, but stored, repeated, expired and quarantined are {settled}"
            )
            sentences.append(text.format(where=where, read=entry.read, settled=entry.settled))
        offset_count = entry.next_offset - entry.first_offset
        if offset_count != entry.passed:
            text = _(
                "{where}: offsets {first} to {last} are {span}, but {passed} are accounted for"
            )
            first, last = entry.first_offset, entry.next_offset - 1
            sentences.append(
                text.format(
                    where=where, first=first, last=last, span=offset_count, passed=entry.passed
                )
            )
        if entry.newly_lost:
            text = ngettext(
                "{where}: {n} message was deleted by the broker before it was read",
                "{where}: {n} messages were deleted by the broker before they were read",
                entry.newly_lost,
            )
            sentences.append(text.format(where=where, n=entry.newly_lost))
        if entry.in_quarantine not in (None, entry.quarantined):
            text = _("{where}: the ledger counts {n} quarantined, the quarantine holds {held}")
            row_count = entry.in_quarantine
            sentences.append(text.format(where=where, n=entry.quarantined, held=row_count))
    return sentences


class LedgerTotals(Answer, kw_only=True):
    """The message counts of the ledger, each summed over all topic partitions."""

    read: MessageCount
    stored: MessageCount
    repeated: MessageCount
    expired: MessageCount
    quarantined: MessageCount
    skipped: MessageCount
    lost: MessageCount
    lag: MessageCount


class RetiredTopicEntry(Answer, kw_only=True):
    """A topic that an operator declared finished."""

    topic: str
    why: str
    at: Moment


class AbsentTopicEntry(Answer, kw_only=True):
    """A topic that does not exist, and when a consumer last asked the brokers for it."""

    topic: str
    asked_at: Moment


class LedgerEntry(Answer, kw_only=True):
    """The figures of one topic partition."""

    topic: str
    partition: MessageCount
    topic_id: str
    current: Annotated[
        bool,
        Meta(
            description="false: the topic was deleted and created again, or its log was truncated."
        ),
    ]
    log_cut: Annotated[
        bool,
        Meta(
            description="true: the log was truncated. Another entry has the figures since it is "
            "read again from its start."
        ),
    ]
    first_offset: MessageCount
    next_offset: MessageCount
    read: MessageCount
    stored: MessageCount
    repeated: MessageCount
    expired: MessageCount
    quarantined: MessageCount
    skipped: MessageCount
    lost: MessageCount
    lost_acknowledged: Annotated[
        MessageCount, Meta(description="How many of the lost messages were acknowledged.")
    ]
    lag: MessageCount | None
    newest_message_at: Moment | None
    checked_at: Moment
    halted_at: Moment | None
    halted_why: str


class LedgerFigures(Answer, kw_only=True):
    """The ledger as `annals ledger --json` prints it and as `GET completeness` returns it."""

    ok: Annotated[bool, Meta(description="All sums add up, and all losses are acknowledged.")]
    faults: list[str]
    totals: LedgerTotals
    retired: list[RetiredTopicEntry]
    never_read: Annotated[
        list[str],
        Meta(
            description="Declared topics that may have messages but were never read. Retired "
            "topics are left out."
        ),
    ]
    absent: Annotated[
        list[AbsentTopicEntry],
        Meta(
            description="Topics that were never read because the brokers answered that they do "
            "not exist, and when a consumer asked last."
        ),
    ]
    undeclared: Annotated[
        list[str],
        Meta(
            description="Topics that were read earlier, and that no kind declares now. Consumers "
            "do not read their new messages."
        ),
    ]
    losses: Annotated[
        list[LossEntry],
        Meta(
            description="A forecast for each topic partition, the most endangered first. "
            "lossSeconds: the time until the broker deletes the oldest unread message if nothing "
            "more is read. If nothing is unread, a message that arrives now counts. "
            "catchUpSeconds: the time until all messages are read. keptSeconds: how long the "
            "broker keeps a message that arrives now. null: never."
        ),
    ]
    partitions: list[LedgerEntry]


def make_figures(
    entries: Sequence[Ledger], faults: Sequence[str], losses: list[LossEntry]
) -> LedgerFigures:
    """Make the figures that commands print and that the API returns."""
    return LedgerFigures(
        ok=not faults,
        faults=list(faults),
        totals=LedgerTotals(
            read=sum(entry.read for entry in entries),
            stored=sum(entry.stored for entry in entries),
            repeated=sum(entry.repeated for entry in entries),
            expired=sum(entry.expired for entry in entries),
            quarantined=sum(entry.quarantined for entry in entries),
            skipped=sum(entry.skipped for entry in entries),
            lost=sum(entry.lost for entry in entries),
            lag=sum(entry.lag or 0 for entry in entries),
        ),
        retired=[
            RetiredTopicEntry(
                topic=retired_topic.topic,
                why=retired_topic.why,
                at=retired_topic.retired_at.isoformat(),
            )
            for retired_topic in load_retired_topics().values()
        ],
        never_read=find_never_read_topics(entries),
        absent=[
            AbsentTopicEntry(topic=topic, asked_at=moment.isoformat())
            for topic, moment in find_absent_topics(entries).items()
        ],
        undeclared=find_undeclared_topics(entries),
        losses=losses,
        partitions=[
            LedgerEntry(
                topic=entry.topic,
                partition=entry.partition,
                topic_id=entry.topic_id,
                current=entry.current,
                log_cut=entry.log_cut,
                first_offset=entry.first_offset,
                next_offset=entry.next_offset,
                read=entry.read,
                stored=entry.stored,
                repeated=entry.repeated,
                expired=entry.expired,
                quarantined=entry.quarantined,
                skipped=entry.skipped,
                lost=entry.lost,
                lost_acknowledged=entry.lost_acknowledged,
                lag=entry.lag,
                newest_message_at=_format_moment(entry.newest_timestamp),
                checked_at=entry.checked_at.isoformat(),
                halted_at=_format_moment(entry.halted_at),
                halted_why=entry.halted_why,
            )
            for entry in entries
        ],
    )


def _format_moment(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def acknowledge_losses(topic: str, partition: int | None, reason: str) -> int:
    """Acknowledge all losses of a topic that are known now. Later losses are reported again.

    Args:
        partition: The partition with the losses; None for all partitions of the topic.

    Returns:
        The number of lost messages that were not acknowledged before.
    """
    conditions = {"topic": topic} if partition is None else {"topic": topic, "partition": partition}
    with transaction.atomic():
        rows = Ledger.objects.filter(**conditions, lost__gt=F("lost_acknowledged"))
        lossy_rows = list(rows.select_for_update().order_by("topic", "topic_id", "partition"))
        for row in lossy_rows:
            Ledger.objects.filter(pk=row.pk).update(lost_acknowledged=row.lost)
        Gap.objects.filter(**conditions, lost=True, why="").update(why=reason)
    return sum(row.lost - row.lost_acknowledged for row in lossy_rows)


def retire_topic(topic: str, reason: str) -> int:
    """Declare a topic finished. If it is declared finished already, change only the reason.

    Returns:
        The number of unread messages, in the partitions with a known end offset.
    """
    RetiredTopic.objects.update_or_create(
        topic=topic,
        defaults={"why": reason},
        create_defaults={"why": reason, "retired_at": clock.now()},
    )
    newest = Ledger.objects.filter(topic=topic).order_by("partition", "-checked_at")
    rows = newest.distinct("partition").values_list("high_watermark", "next_offset")
    return sum(max(0, end - next_offset) for end, next_offset in rows if end is not None)


def unretire_topic(topic: str) -> bool:
    """Undo `retire_topic`. Return False if the topic was not retired."""
    count, _ = RetiredTopic.objects.filter(topic=topic).delete()
    return bool(count)
