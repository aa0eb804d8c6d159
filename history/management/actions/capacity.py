"""What `annals capacity` does."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import date, timedelta
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connection

from history.base import clock
from history.base.table import Table, counted, print_table
from history.capacity import measured
from history.capacity.model import Load, Need, Server, from_rate, full_on, need
from history.entities import ENTITIES
from history.partitions import catalog
from history.partitions.show import size

RETENTIONS = (30, 60, 90, 180, 365)


def run(command: BaseCommand, **options: Any) -> None:
    """Print the disk space. options: the command's. Exits with 1 if no day has rows."""
    today = clock.now().date()
    days = options["days"] or settings.ANNALS.retention_days
    parts: Sequence[catalog.Partition] = ()
    server, disk = Server(), options["disk"]
    if options["rps"] is not None:
        loads, basis = from_rate(options["rps"], options["avg_bytes"]), "given figures"
    else:
        parts = catalog.read(connection, [entity.table for entity in ENTITIES])
        found = measured.loads(connection, parts, today)
        if found is None:
            raise CommandError("no complete day has rows yet. Give --rps and --avg-bytes.")
        loads, basis = found.loads, f"days {found.since} to {found.until}"
        server = measured.server(connection)
        disk = disk or measured.disk(connection)
    server = Server(
        options["checkpoint"] * 60 if options["checkpoint"] else server.checkpoint_s,
        options["wal_compression"] or server.compressed,
    )
    stored = measured.stored(parts, today)
    needs = {load.table: need(load, days, server) for load in loads}
    total = sum(needs.values(), Need(0, 0, 0))
    full = {
        rate: disk and full_on(loads, stored, today, days, disk, server, rate)
        for rate in (0.0, options["growth"])
    }
    changes = _changes(loads, days, server, stored, today)
    if options["json"]:
        answer = {
            "basis": basis,
            "retentionDays": days,
            "tables": {table: _object(each) for table, each in needs.items()},
            "total": _object(total),
            "disk": disk,
            "fullOn": {str(rate): str(day) if day else None for rate, day in full.items()},
            "retention": changes,
        }
        command.stdout.write(json.dumps(answer))
        return
    print_table(command.stdout, _needs_table(loads, needs, total))
    command.stdout.write(
        f"From {basis}, for {counted(days, 'day')} and the current day. WAL is the WAL of one day "
        f"with a checkpoint every {server.checkpoint_s / 60:.0f} min; reserve is 20% of the rest."
    )
    if disk:
        for rate, day in full.items():
            growth = f"growing by {rate:.0%} a year" if rate else "at the current rate"
            command.stdout.write(f"A disk of {size(disk)}, {growth}: {_text(day)}.")
    print_table(command.stdout, _changes_table(changes, days))


def _changes(
    loads: Sequence[Load],
    days: int,
    server: Server,
    stored: Sequence[tuple[date, float]],
    today: date,
) -> list[dict[str, Any]]:
    """Other retentions: what they need, the difference to now, what they free at once."""
    present = sum((need(load, days, server) for load in loads), Need(0, 0, 0)).total
    changes = []
    for other in sorted({*RETENTIONS, days}):
        total = sum((need(load, other, server) for load in loads), Need(0, 0, 0)).total
        oldest = today - timedelta(days=other)
        frees = sum(held for day, held in stored if day < oldest)
        changes.append(
            {"days": other, "total": total, "difference": total - present, "freesNow": frees}
        )
    return changes


def _object(each: Need) -> dict[str, float]:
    return {**asdict(each), "reserve": each.reserve, "total": each.total}


def _text(day: date | int | None) -> str:
    return f"full on {day}" if isinstance(day, date) else "not full within ten years"


def _needs_table(loads: Sequence[Load], needs: dict[str, Need], total: Need) -> Table:
    names = ("table", "rows a day", "bytes a row", "data", "index", "WAL", "reserve", "total")
    table = Table(*names, right=names[1:])
    for load in loads:
        each = needs[load.table]
        row = f"{load.rows_per_day:,.0f}", f"{load.data + load.index:,.0f}"
        table.add(load.table, *row, *_cells(each))
    rows = sum(load.rows_per_day for load in loads)
    table.add("total", f"{rows:,.0f}", "", *_cells(total))
    return table


def _cells(each: Need) -> list[str]:
    figures = (each.data, each.index, each.wal, each.reserve, each.total)
    return [size(int(figure)) for figure in figures]


def _changes_table(changes: Sequence[dict[str, Any]], days: int) -> Table:
    names = ("retention", "needs", "difference", "frees at once")
    table = Table(*names, right=names)
    for change in changes:
        sign = "-" if change["difference"] < 0 else "+"
        table.add(
            f"{change['days']} days",
            size(int(change["total"])),
            "" if change["days"] == days else sign + size(int(abs(change["difference"]))),
            size(int(change["freesNow"])),
        )
    return table
