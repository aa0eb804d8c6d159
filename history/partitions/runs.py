"""The record of maintain's runs: metrics of a command that ends cannot be scraped."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Q

from history.models import MaintainRun
from history.partitions.maintain import Outcome

KEPT = timedelta(days=90)


def note(outcome: Outcome, started_at: datetime, seconds: float) -> None:
    """Record a run, and delete the records of old ones, and of those that began later: their clock
    was ahead. Such a record would be the latest until then, whatever the runs after it did."""
    MaintainRun.objects.create(
        started_at=started_at,
        seconds=seconds,
        exit_code=outcome.exit_code,
        created=len(outcome.created),
        dropped=len(outcome.dropped),
        held=len(outcome.held),
        busy=len(outcome.busy),
        broken=len(outcome.broken),
        search_keys_before=outcome.search_keys_before,
    )
    kept = Q(started_at__gte=started_at - KEPT, started_at__lte=started_at)
    MaintainRun.objects.exclude(kept).delete()


def latest() -> MaintainRun | None:
    """The latest run that was completed; None if there was none yet."""
    return MaintainRun.objects.order_by("-started_at").first()


def latest_whole() -> MaintainRun | None:
    """The latest completed run in which nothing failed; None if there was none yet."""
    return MaintainRun.objects.filter(busy=0, broken=0).order_by("-started_at").first()
