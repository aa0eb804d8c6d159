"""The memory of maintain's runs: a command that ends cannot be scraped."""

from __future__ import annotations

from datetime import datetime, timedelta

from history.models import MaintainRun
from history.partitions.maintain import Outcome

KEPT = timedelta(days=90)


def note(outcome: Outcome, started_at: datetime, seconds: float) -> None:
    """Remember a run, and forget those that are long gone."""
    MaintainRun.objects.create(
        started_at=started_at,
        seconds=seconds,
        exit_code=outcome.exit_code,
        created=len(outcome.created),
        dropped=len(outcome.dropped),
        held=len(outcome.held),
        busy=len(outcome.busy),
        broken=len(outcome.broken),
    )
    MaintainRun.objects.filter(started_at__lt=started_at - KEPT).delete()


def latest() -> MaintainRun | None:
    """The latest run that came to its end; None where there was none yet."""
    return MaintainRun.objects.order_by("-started_at").first()
