"""The figures of the ledger, and the faults where they do not add up."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Count, F, IntegerField, OuterRef, Subquery, Value
from django.db.models.functions import Coalesce
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from history.common import clock
from history.common.consumer_silence import find_silence
from history.kinds.entities import BY_TOPIC
from ingest.messages.message import TopicPartition
from ingest.models import AskedTopic, Gap, Ledger, Quarantined, RetiredTopic


def load_entries(count_quarantine: bool = True) -> list[Ledger]:
    """Return the ledger rows by topic and partition; recreated topics in order of creation.

    `count_quarantine` also counts the rows in quarantine, which reads all unresolved ones.
    """
    place = ("topic", "topic_id", "partition")
    unresolved = (
        Quarantined.objects.exclude(status=Quarantined.Status.RESOLVED)
        .filter(**{name: OuterRef(name) for name in place})
        # Where a topic is read again, the ledger counts what was read since.
        .filter(offset__gte=OuterRef("first_offset"), offset__lt=OuterRef("next_offset"))
        .order_by()
        .values(*place)
        .annotate(count=Count("id"))
        .values("count")
    )
    # One statement, so that both are of one moment: a batch moves both.
    quarantine_count = Coalesce(Subquery(unresolved), 0) + F("quarantine_removed")
    count = quarantine_count if count_quarantine else Value(None, IntegerField())
    reason = RetiredTopic.objects.filter(topic=OuterRef("topic")).values("why")
    counted = Ledger.objects.annotate(held=count, finished=Coalesce(Subquery(reason), Value("")))
    now, rows = clock.now(), list(counted.order_by("topic", "partition", "checked_at"))
    newest = {(row.topic, row.partition): row.topic_id for row in rows}
    places = {(row.topic, row.topic_id, row.partition) for row in rows}
    for row in rows:
        row.current = newest[row.topic, row.partition] == row.topic_id
        row.in_quarantine, row.retired = row.held, row.finished
        needed = row.current and not row.retired
        row.silence = find_silence(row.checked_at, row.end_known_at, now) if needed else None
        row.log_cut = (row.topic, _get_topic_id_after_cut(row), row.partition) in places
    return [*rows]


def _get_topic_id_after_cut(row: Ledger) -> str:
    """Return the topic id under which the ledger continues if the log was cut."""
    return TopicPartition(row.topic, row.topic_id, row.partition).make_successor().topic_id


def load_retired_topics() -> dict[str, RetiredTopic]:
    """Return the topics that are declared finished, by name."""
    return {
        retired_topic.topic: retired_topic
        for retired_topic in RetiredTopic.objects.order_by("topic")
    }


def find_never_read_topics(entries: Sequence[Ledger]) -> list[str]:
    """Return the topics that may have messages and were never read.

    That is each one without a ledger row, unless it is retired or the brokers say that it does not
    exist: see absent().
    """
    read = {entry.topic for entry in entries}
    excluded = {*load_retired_topics(), *find_absent_topics(entries)}
    return [topic for topic in BY_TOPIC if topic not in read and topic not in excluded]


def find_absent_topics(entries: Sequence[Ledger]) -> dict[str, datetime]:
    """Return the topics that were never read because the brokers say that they do not exist, each
    with the moment at which a consumer last asked. Retired ones are not among them."""
    asked_at = dict(AskedTopic.objects.filter(absent=True).values_list("topic", "asked_at"))
    absent_topics = (
        asked_at.keys()
        & BY_TOPIC.keys() - {entry.topic for entry in entries} - load_retired_topics().keys()
    )
    return {topic: asked_at[topic] for topic in BY_TOPIC if topic in absent_topics}


def find_unexpectedly_absent_topics(entries: Sequence[Ledger]) -> list[str]:
    """Return the topics of absent() that services send to: only migration topics may be absent."""
    return [topic for topic in find_absent_topics(entries) if topic == BY_TOPIC[topic].topics[0]]


def find_undeclared_topics(entries: Sequence[Ledger]) -> list[str]:
    """Return the topics that were read and belong to no kind any more, without retired ones."""
    current = {entry.topic for entry in entries if entry.current and not entry.retired}
    return sorted(current - BY_TOPIC.keys())


def find_faults(entries: Sequence[Ledger]) -> list[str]:
    """Return a sentence for each topic partition with a fault, in the language of the page.

    A fault is a sum that does not add up, or a loss that is not acknowledged.
    """
    sentences = []
    for entry in entries:
        where = f"{entry.topic}[{entry.partition}]"
        if entry.read != entry.settled:
            text = _(
                "{where}: {read} read, but stored, repeated, expired and quarantined are {settled}"
            )
            sentences.append(text.format(where=where, read=entry.read, settled=entry.settled))
        span = entry.next_offset - entry.first_offset
        if span != entry.passed:
            text = _(
                "{where}: offsets {first} to {last} are {span}, but {passed} are accounted for"
            )
            first, last = entry.first_offset, entry.next_offset - 1
            sentences.append(
                text.format(where=where, first=first, last=last, span=span, passed=entry.passed)
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


def as_json(
    entries: Sequence[Ledger], faults: Sequence[str], losses: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Return partitions, totals, faults, forecasts, and retired and never read topics as JSON."""
    names = ("read", "stored", "repeated", "expired", "quarantined", "skipped", "lost")
    return {
        "ok": not faults,
        "faults": list(faults),
        "totals": {
            **{name: sum(getattr(entry, name) for entry in entries) for name in names},
            "lag": sum(entry.lag or 0 for entry in entries),
        },
        "retired": [
            {
                "topic": retired_topic.topic,
                "why": retired_topic.why,
                "at": _format_moment(retired_topic.retired_at),
            }
            for retired_topic in load_retired_topics().values()
        ],
        "neverRead": find_never_read_topics(entries),
        "absent": [
            {"topic": topic, "askedAt": _format_moment(moment)}
            for topic, moment in find_absent_topics(entries).items()
        ],
        "undeclared": find_undeclared_topics(entries),
        "losses": list(losses),
        "partitions": [
            {
                "topic": entry.topic,
                "partition": entry.partition,
                "topicId": entry.topic_id,
                "current": entry.current,
                "logCut": entry.log_cut,
                "firstOffset": entry.first_offset,
                "nextOffset": entry.next_offset,
                **{name: getattr(entry, name) for name in names},
                "lostAcknowledged": entry.lost_acknowledged,
                "lag": entry.lag,
                "newestMessageAt": _format_moment(entry.newest_timestamp),
                "checkedAt": _format_moment(entry.checked_at),
                "haltedAt": _format_moment(entry.halted_at),
                "haltedWhy": entry.halted_why,
            }
            for entry in entries
        ],
    }


def _format_moment(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def acknowledge_losses(topic: str, partition: int | None, reason: str) -> int:
    """Acknowledge all losses of a topic, or of one partition, that are known now.

    Later losses are reported again.

    Returns:
        The number of lost messages.
    """
    place = {"topic": topic} if partition is None else {"topic": topic, "partition": partition}
    with transaction.atomic():
        rows = Ledger.objects.filter(**place, lost__gt=F("lost_acknowledged"))
        lossy_rows = list(rows.select_for_update().order_by("topic", "topic_id", "partition"))
        for row in lossy_rows:
            Ledger.objects.filter(pk=row.pk).update(lost_acknowledged=row.lost)
        Gap.objects.filter(**place, lost=True, why="").update(why=reason)
    return sum(row.lost - row.lost_acknowledged for row in lossy_rows)


def retire_topic(topic: str, reason: str) -> int:
    """Declare a topic finished, or change the reason of a finished one.

    Returns:
        The number of its known messages that were not read.
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
    """Take back that a topic is finished. Return False if it was not."""
    count, _ = RetiredTopic.objects.filter(topic=topic).delete()
    return bool(count)
