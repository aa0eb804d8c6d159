"""`manage.py ledger`: prints the ledger and the places where it does not add up."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand
from rich.console import Console
from rich.table import Table

from ingest.completeness import figures
from ingest.management.commands.consume import brokers
from ingest.source import kafka

COLUMNS = ("read", "stored", "repeated", "expired", "quarantined")


class Command(BaseCommand):
    help = (
        "Print the messages read, stored, repeated, expired and quarantined of each topic "
        "partition; exit 1 if the sums do not add up."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print JSON")
        parser.add_argument(
            "--offline",
            action="store_true",
            help="do not ask Kafka; show the lag that the consumer recorded last",
        )

    def handle(self, **options: Any) -> None:
        entries = figures.entries()
        if not options["offline"]:
            entries = self._with_lag(entries)
        faults = figures.faults(entries)
        if options["json"]:
            self.stdout.write(json.dumps(figures.as_json(entries, faults)))
        else:
            self._print(entries, faults)
        if faults:
            sys.exit(1)

    def _with_lag(self, entries: list[figures.Entry]) -> list[figures.Entry]:
        bootstrap, given = brokers()
        places = [(entry.topic, entry.partition) for entry in entries if entry.current]
        try:
            ends = kafka.ends(bootstrap, given, places)
        except kafka.Unreachable as error:
            self.stderr.write(
                f"Kafka does not answer ({error}): the lag is the consumer's last record."
            )
            return entries
        return [
            entry.with_high_watermark(ends.get((entry.topic, entry.partition)))
            if entry.current
            else entry
            for entry in entries
        ]

    def _print(self, entries: list[figures.Entry], faults: list[str]) -> None:
        if not entries:
            self.stdout.write("The ledger is empty: nothing has been consumed yet.")
            return
        table = Table(
            "topic", "partition", *COLUMNS, "skipped", "lost", "next offset", "lag", "state"
        )
        for column in table.columns[1:-1]:
            column.justify = "right"
        for entry in entries:
            counts = (getattr(entry, name) for name in (*COLUMNS, "skipped", "lost", "next_offset"))
            lag = "?" if entry.lag is None else f"{entry.lag:,}"
            cells = (str(entry.partition), *(f"{count:,}" for count in counts), lag, entry.state)
            table.add_row(entry.topic, *cells)
        table.add_section()
        total = (f"{sum(getattr(entry, name) for entry in entries):,}" for name in COLUMNS)
        table.add_row("all", "", *total)
        Console(file=self.stdout, width=None if sys.stdout.isatty() else 200).print(table)  # type: ignore[arg-type]
        for fault in faults:
            self.stdout.write(f"FAULT {fault}")
        if not faults:
            self.stdout.write("Every message read is accounted for.")
