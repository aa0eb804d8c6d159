"""How much each client service brings: recorded once for each finished day, then added up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from datetime import date, timedelta

from django.db import connection, transaction
from django.db.models import Max

from history.capacity.estimate import OTHER, Amount, Brought, estimate
from history.capacity.sample import sample
from history.days import partition_name
from history.entities import BY_TABLE, ENTITIES, Entity
from history.models import DayShare
from history.partitions import catalog

Report = Callable[[str, date], None]


@dataclass(frozen=True, slots=True)
class Line:
    """What one service brought of one kind of entity. client_id: OTHER for the small ones."""

    client_id: str
    entity: Entity
    brought: Brought


@dataclass(frozen=True, slots=True)
class Stored:
    """The recorded days, added up. since, until: the first and the last, both included; days: how
    many different ones. Lines by bytes, the most first. total: of all services, with its own error,
    which is smaller than those of the lines together."""

    since: date
    until: date
    days: int
    lines: Sequence[Line]
    total: Brought

    def by_client(self) -> list[tuple[str, Brought]]:
        """Over all kinds of entities, the most bytes first."""
        sums: dict[str, Brought] = {}
        for line in self.lines:
            sums[line.client_id] = sums.get(line.client_id, Brought()) + line.brought
        return sorted(sums.items(), key=lambda each: (-each[1].all.bytes, each[0]))


def record(
    today: date, retention_days: int, blocks: int, again: bool, report: Report = lambda *_: None
) -> int:
    """Sample the days inside retention that are over and not recorded yet, or all of them again;
    forget older ones. Returns how many days of tables were sampled.

    Each day of a table is committed on its own: a run that is interrupted goes on where it was.
    """
    oldest = today - timedelta(days=retention_days)
    DayShare.objects.filter(day__lt=oldest).delete()
    known = set() if again else set(DayShare.objects.values_list("table", "day").distinct())
    parts = catalog.read(connection, [entity.table for entity in ENTITIES])
    count = 0
    for part in parts:
        day = part.day
        if day is None or part.start is None or not oldest <= day < today:
            continue
        if (part.table, day) in known or part.name != partition_name(part.table, day):
            continue
        _record(BY_TABLE[part.table], day, blocks)
        report(part.table, day)
        count += 1
    return count


def _record(entity: Entity, day: date, blocks: int) -> None:
    connection.ensure_connection()
    found = sample(connection.connection, entity, partition_name(entity.table, day), blocks)
    total, each_ = estimate(found.rows, found.chosen, found.table)
    lines = [(True, OTHER, total), *((False, client, mine) for client, mine in each_.items())]
    with transaction.atomic():
        DayShare.objects.filter(table=entity.table, day=day).delete()
        DayShare.objects.bulk_create(
            DayShare(
                table=entity.table,
                day=day,
                total=whole,
                client_id=client,
                sampled=each.sampled,
                all=astuple(each.all),
                nothing=astuple(each.nothing),
                technical=astuple(each.technical),
            )
            for whole, client, each in lines
        )


def stored(since: date | None = None) -> Stored | None:
    """What is recorded of the days from `since` on; None if nothing is."""
    rows = DayShare.objects.all() if since is None else DayShare.objects.filter(day__gte=since)
    sums: dict[tuple[str, str], Brought] = {}
    days, total = set(), Brought()
    for row in rows.order_by("day", "table", "client_id"):
        days.add(row.day)
        if row.total:
            total += _brought(row)
            continue
        key = (row.client_id, row.table)
        sums[key] = sums.get(key, Brought()) + _brought(row)
    if not days:
        return None
    lines = [Line(client, BY_TABLE[table], brought) for (client, table), brought in sums.items()]
    lines.sort(key=lambda line: (-line.brought.all.bytes, line.client_id, line.entity.name))
    return Stored(min(days), max(days), len(days), lines, total)


def newest() -> Stored | None:
    """What is recorded of the newest day; None if nothing is."""
    day = DayShare.objects.aggregate(day=Max("day"))["day"]
    return None if day is None else stored(day)


def _brought(row: DayShare) -> Brought:
    return Brought(
        Amount(*row.all), Amount(*row.nothing), Amount(*row.technical), sampled=row.sampled
    )
