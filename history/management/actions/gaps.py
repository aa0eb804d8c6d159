"""What `manage.py gaps` does."""

from __future__ import annotations

import json
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils import translation
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from history import clock, trace
from history.gaps import read
from history.gaps.read import Listed, Selection
from history.gaps.run import Outcome, latest, run
from history.management.progress import Progress
from history.plain_text import one_line
from history.window import Window

MOST_LISTED = 10_000


class Run:
    """The action of one call of the command."""

    def __init__(self, command: BaseCommand) -> None:
        self.stdout, self.stderr = command.stdout, command.stderr

    def handle(self, **options: Any) -> None:
        with translation.override("en"):
            if options["command"] == "list":
                self._list(options)
            else:
                self._run(options["json"])

    def _run(self, as_json: bool) -> None:
        annals = settings.ANNALS
        window = Window.at(clock.now(), annals.retention_days, annals.ahead_days)
        with Progress("days", None, self.stderr) as shown:  # type: ignore[arg-type] # a wrapper
            done = run(window, clock.now(), shown.advance)
        sums = read.sums()
        noted = latest()
        quarantined = noted.quarantined if noted else 0
        if as_json:
            self.stdout.write(json.dumps(as_object(done, sums, quarantined)))
            return
        self._print(sums)
        self.stdout.write(
            f"{sum(each.versions for each in sums):,} versions missing in "
            f"{sum(each.gaps for each in sums):,} gaps, {quarantined:,} of them in quarantine. "
            f"{done.days} days read, {done.documents:,} documents looked at, {done.expired:,} gaps "
            f"expired, in {done.seconds:.1f} s."
        )

    def _print(self, sums: list[read.Sum]) -> None:
        if not sums:
            return
        table = Table("entity", "service", "gaps", "versions missing")
        for column in table.columns[2:]:
            column.justify = "right"
        for each in sums:
            client = escape(one_line(each.client_id))
            table.add_row(each.entity, client, f"{each.gaps:,}", f"{each.versions:,}")
        width = None if sys.stdout.isatty() else 160
        Console(file=self.stdout, width=width).print(table)  # type: ignore[arg-type]

    def _list(self, options: dict[str, Any]) -> None:
        if not 0 < options["limit"] <= MOST_LISTED:
            raise CommandError(f"--limit must be from 1 to {MOST_LISTED}.")
        selection = Selection(options["entity"], options["client"], options["closed"])
        found = read.page(selection, options["limit"], options["before"])
        if options["json"] or options["list_json"]:
            for each in found:
                self.stdout.write(json.dumps(gap_as_object(each)))
            return
        for each in found:
            gap = each.gap
            numbers = f"{gap.first}" if gap.first == gap.last else f"{gap.first}-{gap.last}"
            state = f"{gap.outcome} {gap.closed_at:%Y-%m-%d %H:%M}" if gap.closed_at else "open"
            line = (
                f"{gap.id} {gap.entity} {gap.document} {numbers} {gap.client_id} "
                f"{gap.since:%Y-%m-%d %H:%M}..{gap.until:%Y-%m-%d %H:%M} {state}"
            )
            self.stdout.write(one_line(line))
            for held in each.came.values():
                self.stdout.write("  " + " ".join(trace.said(trace.quarantined_fate(held))))
        if not found and latest() is None:
            self.stdout.write("Nobody has looked yet: run manage.py gaps.")
        elif not found:
            self.stdout.write("There is no such gap.")
        elif len(found) == options["limit"]:
            self.stdout.write(f"The next page: --before {found[-1].gap.id}")


def as_object(done: Outcome, sums: list[read.Sum], quarantined: int) -> dict[str, Any]:
    """The result of a run as JSON values."""
    return {
        "days": done.days,
        "documents": done.documents,
        "expired": done.expired,
        "seconds": round(done.seconds, 3),
        "gaps": sum(each.gaps for each in sums),
        "versions": sum(each.versions for each in sums),
        "quarantined": quarantined,
        "by": [each._asdict() for each in sums],
    }


def gap_as_object(each: Listed) -> dict[str, Any]:
    """A gap as JSON values."""
    gap = each.gap
    return {
        "gap": gap.id,
        "kind": gap.entity,
        "id": gap.document,
        "first": gap.first,
        "last": gap.last,
        "beginning": gap.beginning,
        "clientId": gap.client_id,
        "since": gap.since.isoformat(),
        "until": gap.until.isoformat(),
        "foundAt": gap.found_at.isoformat(),
        "closedAt": gap.closed_at and gap.closed_at.isoformat(),
        "outcome": gap.outcome or None,
        "quarantined": {
            number: {"reason": held.reason, "at": held.came_at.isoformat()}
            for number, held in each.came.items()
        },
    }
