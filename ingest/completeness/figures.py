"""The ledger's figures, and the places where they do not add up."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Count, F, IntegerField, OuterRef, Subquery, Value
from django.db.models.functions import Coalesce
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from history.base import clock
from history.base.silence import silence
from history.entities import BY_TOPIC
from ingest.models import AskedTopic, Gap, Ledger, Quarantined, RetiredTopic
from ingest.source.message import TopicPartition


def entries(count_quarantine: bool = True) -> list[Ledger]:
    """The ledger by topic and partition; topics that were created again in order of creation.
    count_quarantine: whether to count the rows in quarantine: reads all that are not resolved."""
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
    rows_there = Coalesce(Subquery(unresolved), 0) + F("quarantine_removed")
    count = rows_there if count_quarantine else Value(None, IntegerField())
    why = RetiredTopic.objects.filter(topic=OuterRef("topic")).values("why")
    counted = Ledger.objects.annotate(held=count, finished=Coalesce(Subquery(why), Value("")))
    now, rows = clock.now(), list(counted.order_by("topic", "partition", "checked_at"))
    newest = {(row.topic, row.partition): row.topic_id for row in rows}
    places = {(row.topic, row.topic_id, row.partition) for row in rows}
    for row in rows:
        row.current = newest[row.topic, row.partition] == row.topic_id
        row.in_quarantine, row.retired = row.held, row.finished
        needed = row.current and not row.retired
        row.silence = silence(row.checked_at, row.end_known_at, now) if needed else None
        row.log_cut = (row.topic, _after_cut(row), row.partition) in places
    return [*rows]


def _after_cut(row: Ledger) -> str:
    """The topic id under which the ledger continues if the log was cut."""
    return TopicPartition(row.topic, row.topic_id, row.partition).make_successor().topic_id


def retired() -> dict[str, RetiredTopic]:
    """The topics that are declared finished, by name."""
    return {each.topic: each for each in RetiredTopic.objects.order_by("topic")}


def never_read(found: Sequence[Ledger]) -> list[str]:
    """Return the topics that may have messages and were never read.

    That is each one without a ledger row, unless it is retired or the brokers say that it does not
    exist: see absent().
    """
    read = {entry.topic for entry in found}
    known = {*retired(), *absent(found)}
    return [topic for topic in BY_TOPIC if topic not in read and topic not in known]


def absent(found: Sequence[Ledger]) -> dict[str, datetime]:
    """Return the topics that were never read because the brokers say that they do not exist, each
    with the moment at which a consumer last asked. Retired ones are not among them."""
    asked = dict(AskedTopic.objects.filter(absent=True).values_list("topic", "asked_at"))
    without = asked.keys() & BY_TOPIC.keys() - {entry.topic for entry in found} - retired().keys()
    return {topic: asked[topic] for topic in BY_TOPIC if topic in without}


def unexpectedly_absent(found: Sequence[Ledger]) -> list[str]:
    """Return the topics of absent() that services send to: only migration topics may be absent."""
    return [topic for topic in absent(found) if topic == BY_TOPIC[topic].topics[0]]


def undeclared(found: Sequence[Ledger]) -> list[str]:
    """The topics that were read and that no declared kind has any more, but for retired ones."""
    current = {entry.topic for entry in found if entry.current and not entry.retired}
    return sorted(current - BY_TOPIC.keys())


def faults(found: Sequence[Ledger]) -> list[str]:
    """One sentence, in the reader's language, for each place where the sums do not add up or
    messages were lost since the last acknowledgement."""
    sentences = []
    for entry in found:
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
            held = entry.in_quarantine
            sentences.append(text.format(where=where, n=entry.quarantined, held=held))
    return sentences


def as_json(
    found: Sequence[Ledger], broken: Sequence[str], losses: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Partitions, totals, faults, forecasts, and topics retired or never read, as JSON."""
    names = ("read", "stored", "repeated", "expired", "quarantined", "skipped", "lost")
    return {
        "ok": not broken,
        "faults": list(broken),
        "totals": {
            **{name: sum(getattr(entry, name) for entry in found) for name in names},
            "lag": sum(entry.lag or 0 for entry in found),
        },
        "retired": [
            {"topic": each.topic, "why": each.why, "at": _iso(each.retired_at)}
            for each in retired().values()
        ],
        "neverRead": never_read(found),
        "absent": [{"topic": topic, "askedAt": _iso(at)} for topic, at in absent(found).items()],
        "undeclared": undeclared(found),
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
                "newestMessageAt": _iso(entry.newest_timestamp),
                "checkedAt": _iso(entry.checked_at),
                "haltedAt": _iso(entry.halted_at),
                "haltedWhy": entry.halted_why,
            }
            for entry in found
        ],
    }


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def acknowledge(topic: str, partition: int | None, why: str) -> int:
    """Acknowledge all losses of a topic, or of one partition, that are known now. Returns the
    number of messages; later losses are reported again."""
    place = {"topic": topic} if partition is None else {"topic": topic, "partition": partition}
    with transaction.atomic():
        rows = Ledger.objects.filter(**place, lost__gt=F("lost_acknowledged"))
        found = list(rows.select_for_update().order_by("topic", "topic_id", "partition"))
        for row in found:
            Ledger.objects.filter(pk=row.pk).update(lost_acknowledged=row.lost)
        Gap.objects.filter(**place, lost=True, why="").update(why=why)
    return sum(row.lost - row.lost_acknowledged for row in found)


def retire(topic: str, why: str) -> int:
    """Declare a topic finished; a second time: with another reason. Returns the number of its
    messages that are known and were not read."""
    RetiredTopic.objects.update_or_create(
        topic=topic, defaults={"why": why}, create_defaults={"why": why, "retired_at": clock.now()}
    )
    newest = Ledger.objects.filter(topic=topic).order_by("partition", "-checked_at")
    rows = newest.distinct("partition").values_list("high_watermark", "next_offset")
    return sum(max(0, end - next_offset) for end, next_offset in rows if end is not None)


def unretire(topic: str) -> bool:
    """Take retire() back. False: the topic was not retired."""
    count, _ = RetiredTopic.objects.filter(topic=topic).delete()
    return bool(count)
