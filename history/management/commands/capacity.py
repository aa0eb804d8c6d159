"""`annals capacity`: computes the disk space of the history, from partitions or given figures."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection

from history.common.text_tables import build_table, pluralize, print_table
from history.kinds.entities import ENTITIES
from history.management.numbers import MAX_DAYS, make_number_parser, make_whole_parser

if TYPE_CHECKING:
    from history.retention.capacity.loads import DiskNeed


COLUMNS = ("table", "rows a day", "bytes a row", "data", "indexes", "reserve", "total")


class Command(BaseCommand):
    help = "Compute the disk space of the history."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--rps",
            type=make_number_parser(0.001, 1e7),
            help="messages per second (default: measured)",
        )
        parser.add_argument(
            "--avg-bytes",
            type=make_number_parser(1, 1e9),
            default=1785.0,
            help="mean size of a message in bytes, used with --rps (default 1785)",
        )
        parser.add_argument(
            "--days",
            type=make_whole_parser(1, MAX_DAYS),
            help="retention in days (default: ANNALS_RETENTION_DAYS)",
        )
        parser.add_argument(
            "--pack-after-days",
            type=make_whole_parser(0, MAX_DAYS),
            help="days after which a day is packed, 0: never (default: ANNALS_PACK_AFTER_DAYS)",
        )
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *_: Any, **options: Any) -> None:
        """Print the disk space that the history needs. Exit with 1 if no day has rows."""
        from history.common import clock
        from history.retention import catalog
        from history.retention.capacity.loads import DiskNeed, from_rate, measure_loads

        days = options["days"] or settings.ANNALS.retention_days
        if options["rps"] is not None:
            loads, basis = from_rate(options["rps"], options["avg_bytes"]), "given figures"
        else:
            partitions = catalog.read_partitions(connection, [entity.table for entity in ENTITIES])
            measurement = measure_loads(connection, partitions, clock.now().date())
            if measurement is None:
                raise CommandError(
                    "No complete day has plain rows yet: give --rps and --avg-bytes."
                )
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
            self.stdout.write(json.dumps(content))
            return
        table = build_table(*COLUMNS, right=COLUMNS[1:])
        for load in loads:
            row = f"{load.rows_per_day:,.0f}", f"{load.data + load.index:,.0f}"
            table.add_row(load.table, *row, *_format_cells(needs[load.table]))
        table.add_row(
            "total", f"{sum(load.rows_per_day for load in loads):,.0f}", "", *_format_cells(total)
        )
        print_table(self.stdout, table)
        packing = (
            f"Days are packed {pluralize(after, 'day')} after their end."
            if after
            else "No day is packed."
        )
        self.stdout.write(
            f"Computed from {basis}, for {pluralize(days, 'day')} and the current day. {packing} "
            "The WAL is not included. The reserve is 20% of data and indexes."
        )


def _make_json_object(need: DiskNeed) -> dict[str, float]:
    return {"data": need.data, "index": need.index, "reserve": need.reserve, "total": need.total}


def _format_cells(need: DiskNeed) -> list[str]:
    from history.retention.partition_output import format_size

    return [format_size(int(figure)) for figure in _make_json_object(need).values()]
