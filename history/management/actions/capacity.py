"""The action of `annals capacity`."""

import json
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connection

from history.common import clock
from history.common.text_tables import build_table, pluralize, print_table
from history.kinds.entities import ENTITIES
from history.retention import catalog
from history.retention.capacity.loads import DiskNeed, from_rate, measure_loads
from history.retention.tables import format_size

COLUMNS = ("table", "rows a day", "bytes a row", "data", "indexes", "reserve", "total")


def run(command: BaseCommand, **options: Any) -> None:
    """Print the disk space that the history needs. Exit with 1 if no day has rows."""
    days = options["days"] or settings.ANNALS.retention_days
    if options["rps"] is not None:
        loads, basis = from_rate(options["rps"], options["avg_bytes"]), "given figures"
    else:
        parts = catalog.read_partitions(connection, [entity.table for entity in ENTITIES])
        measurement = measure_loads(connection, parts, clock.now().date())
        if measurement is None:
            raise CommandError("no complete day has rows yet. Give --rps and --avg-bytes.")
        loads, basis = measurement.loads, f"days {measurement.since} to {measurement.until}"
    after = options["pack_after_days"]
    if after is None:
        after = settings.ANNALS.pack_after_days
    needs = {load.table: load.compute_need(days, after) for load in loads}
    total = sum(needs.values(), DiskNeed())
    if options["json"]:
        content = {
            "basis": basis,
            "retentionDays": days,
            "packAfterDays": after,
            "tables": {table: _make_json_object(need) for table, need in needs.items()},
            "total": _make_json_object(total),
        }
        command.stdout.write(json.dumps(content))
        return
    table = build_table(*COLUMNS, right=COLUMNS[1:])
    for load in loads:
        row = f"{load.rows_per_day:,.0f}", f"{load.data + load.index:,.0f}"
        table.add_row(load.table, *row, *_format_cells(needs[load.table]))
    table.add_row(
        "total", f"{sum(load.rows_per_day for load in loads):,.0f}", "", *_format_cells(total)
    )
    print_table(command.stdout, table)
    command.stdout.write(
        f"From {basis}, for {pluralize(days, 'day')} and the current day, "
        + (f"packed {pluralize(after, 'day')} after their end, " if after else "none packed, ")
        + "without WAL; reserve is 20% of the rest."
    )


def _make_json_object(need: DiskNeed) -> dict[str, float]:
    return {"data": need.data, "index": need.index, "reserve": need.reserve, "total": need.total}


def _format_cells(need: DiskNeed) -> list[str]:
    return [format_size(int(figure)) for figure in _make_json_object(need).values()]
