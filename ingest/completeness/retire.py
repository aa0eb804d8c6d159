"""Declares that a topic is finished, so that nothing waits for its messages any more."""

from __future__ import annotations

from history import clock
from ingest.models import Ledger, RetiredTopic


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
