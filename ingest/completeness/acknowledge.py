"""Records that somebody knows of messages that the broker deleted before they were read."""

from __future__ import annotations

from django.db import transaction
from django.db.models import F

from ingest.models import Gap, Ledger


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
