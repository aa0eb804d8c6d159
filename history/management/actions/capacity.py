"""What `annals capacity` does."""

import json
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connection

from history.base import clock
from history.base.table import columns, counted, print_table
from history.capacity.loads import Need, from_rate, measured
from history.entities import ENTITIES
from history.partitions import catalog
from history.partitions.show import size

COLUMNS = ("table", "rows a day", "bytes a row", "data", "indexes", "reserve", "total")


def run(command: BaseCommand, **options: Any) -> None:
    """Print the disk space. options: the command's. Exits with 1 if no day has rows."""
    days = options["days"] or settings.ANNALS.retention_days
    if options["rps"] is not None:
        loads, basis = from_rate(options["rps"], options["avg_bytes"]), "given figures"
    else:
        parts = catalog.read(connection, [entity.table for entity in ENTITIES])
        found = measured(connection, parts, clock.now().date())
        if found is None:
            raise CommandError("no complete day has rows yet. Give --rps and --avg-bytes.")
        loads, basis = found.loads, f"days {found.since} to {found.until}"
    after = options["pack_after_days"]
    if after is None:
        after = settings.ANNALS.pack_after_days
    needs = {load.table: load.need(days, after) for load in loads}
    total = sum(needs.values(), Need())
    if options["json"]:
        answer = {
            "basis": basis,
            "retentionDays": days,
            "packAfterDays": after,
            "tables": {table: _object(each) for table, each in needs.items()},
            "total": _object(total),
        }
        command.stdout.write(json.dumps(answer))
        return
    table = columns(*COLUMNS, right=COLUMNS[1:])
    for load in loads:
        row = f"{load.rows_per_day:,.0f}", f"{load.data + load.index:,.0f}"
        table.add_row(load.table, *row, *_cells(needs[load.table]))
    table.add_row("total", f"{sum(load.rows_per_day for load in loads):,.0f}", "", *_cells(total))
    print_table(command.stdout, table)
    command.stdout.write(
        f"From {basis}, for {counted(days, 'day')} and the current day, "
        + (f"packed {counted(after, 'day')} after their end, " if after else "none packed, ")
        + "without WAL; reserve is 20% of the rest."
    )


def _object(each: Need) -> dict[str, float]:
    return {"data": each.data, "index": each.index, "reserve": each.reserve, "total": each.total}


def _cells(each: Need) -> list[str]:
    return [size(int(figure)) for figure in _object(each).values()]
