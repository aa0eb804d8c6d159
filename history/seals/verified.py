"""What `partitions verify` found in each table the last time: metrics of a command that ends cannot
be scraped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Min

from history.models import DaySeal, VerifiedTable


@dataclass(frozen=True, slots=True)
class Verified:
    """The latest complete check of a table with seals. since: when it began; before the first
    check, the time of the first seal, from which on a check is due. faults: days that differ, and
    one more if the chain is broken; None before the first check."""

    table: str
    since: datetime
    faults: int | None


def note(table: str, started_at: datetime, days: int, faults: int) -> None:
    """Record a check of all sealed days of a table."""
    VerifiedTable.objects.update_or_create(
        table=table, defaults={"started_at": started_at, "days": days, "faults": faults}
    )


def latest() -> Iterator[Verified]:
    """The latest check of each table that has seals, or had some when it was checked."""
    checked = {found.table: found for found in VerifiedTable.objects.all()}
    sealed = DaySeal.objects.values("table").annotate(first=Min("sealed_at")).order_by("table")
    for found in sealed:
        if found["table"] not in checked:
            yield Verified(found["table"], found["first"], None)
    for table, check in checked.items():
        yield Verified(table, check.started_at, check.faults)
