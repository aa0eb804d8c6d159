"""What `annals gaps` does."""

import json
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.utils import translation

from history import trace
from history.base import clock
from history.base.plain_text import one_line
from history.base.table import columns, counted, print_table
from history.daily.window import Window
from history.gaps import read
from history.gaps.read import ListedGap, Selection
from history.gaps.run import GapsOutcome, latest, run
from history.management.progress import progress


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
        with progress("days", None, sys.stderr) as advance:
            done = run(window, clock.now(), lambda: advance(1))
        sums = read.sums()
        noted = latest()
        quarantined = noted.quarantined if noted else 0
        if as_json:
            self.stdout.write(json.dumps(as_object(done, sums, quarantined)))
            return
        self._print(sums)
        self.stdout.write(
            f"{counted(sum(each.versions for each in sums), 'version')} missing in "
            f"{counted(sum(each.gaps for each in sums), 'gap')}, {quarantined:,} of them in "
            f"quarantine. {counted(done.days, 'day')} read, "
            f"{counted(done.documents, 'document')} looked at, "
            f"{counted(done.expired, 'gap')} expired, in {done.seconds:.1f} s."
        )

    def _print(self, sums: list[read.Sum]) -> None:
        if not sums:
            return
        names = ("entity", "service", "gaps", "versions missing")
        table = columns(*names, right=names[2:])
        for each in sums:
            client = one_line(each.client_id)
            table.add_row(each.entity, client, f"{each.gaps:,}", f"{each.versions:,}")
        print_table(self.stdout, table)

    def _list(self, options: dict[str, Any]) -> None:
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
            if gap.asked_at and not gap.closed_at:
                self.stdout.write(f"  asked for on {gap.asked_at:%Y-%m-%d %H:%M} UTC")
        if not found and latest() is None:
            self.stdout.write("Nobody has looked yet: run annals gaps.")
        elif not found:
            narrowed = selection.narrowed or selection.closed or options["before"]
            self.stdout.write("There is no such gap." if narrowed else "No gap is open.")
        elif len(found) == options["limit"]:
            self.stdout.write(f"The next page: --before {found[-1].gap.id}")


def as_object(done: GapsOutcome, sums: list[read.Sum], quarantined: int) -> dict[str, Any]:
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


def gap_as_object(each: ListedGap) -> dict[str, Any]:
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
        "askedAt": gap.asked_at and gap.asked_at.isoformat(),
    }
