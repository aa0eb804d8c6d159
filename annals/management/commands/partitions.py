"""`manage.py partitions`: what exists, what should, and making it so."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser
from django.db import Error as DatabaseError
from django.db import connection
from psqlextra.partitioning import PostgresPartitioningError
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from history.entities import ENTITIES
from history.partitions import catalog, locks, show
from history.partitions.maintain import AlreadyRunningError, Outcome, maintain
from history.partitions.plan import DayPlan, Policy, plan
from history.partitions.strategy import DayPartition
from ingest.guard import unsettled


class Command(BaseCommand):
    help = "List, plan and maintain the day partitions of the *_aud tables."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        listing = actions.add_parser("list", help="the partitions that exist")
        planning = actions.add_parser(
            "plan", help="what would be created, dropped and kept, and why"
        )
        upkeep = actions.add_parser(
            "maintain",
            help="do what the plan says; exit 0: done, 1: not all was possible now, the next run "
            "tries again, 2: broken",
        )
        upkeep.add_argument("--dry-run", action="store_true", help="print the plan, do nothing")
        for each in (planning, upkeep):
            each.add_argument(
                "--force",
                action="store_true",
                help="also drop days that have unresolved or unread messages",
            )
            each.add_argument(
                "--each",
                action="store_true",
                help="a line for every partition, not for runs of days",
            )
        for each in (listing, planning, upkeep):
            each.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *_: object, **options: Any) -> None:
        self.options = options
        guard = None if options.get("force") else unsettled
        self.policy = Policy.at(datetime.now(UTC), settings.ANNALS, guard)
        if options["action"] == "maintain" and options["dry_run"]:
            options["action"] = "plan"
        try:
            code = getattr(self, f"_{options['action']}")()
        except AlreadyRunningError as error:
            self.stderr.write(f"Nothing done: {error}.")
            code = 1
        except (PostgresPartitioningError, DatabaseError) as error:
            self.stderr.write(f"Broken: {error}.")
            code = 2
        if code:
            sys.exit(code)

    def _list(self) -> int:
        parts = catalog.read(connection, [entity.table for entity in ENTITIES])
        if self.options["json"]:
            self.stdout.write(json.dumps([show.partition_object(part) for part in parts]))
        else:
            self._print(show.partitions(parts))
            total = show.size(sum(part.bytes for part in parts))
            self.stdout.write(f"{len(parts)} partitions, {total}.")
        return 0

    def _plan(self) -> int:
        plans = plan(self.policy)
        lines = [line for table in plans for line in table.lines()]
        counts = {
            action: sum(line.action == action for line in lines)
            for action in ("create", "drop", "keep")
        }
        room = locks.count(connection, plans)
        if self.options["json"]:
            days = {
                "oldest": str(self.policy.window.oldest),
                "newest": str(self.policy.window.newest),
            }
            objects = [show.line_object(line) for line in lines]
            answer = {"window": days, **counts, "locks": asdict(room), "partitions": objects}
            self.stdout.write(json.dumps(answer))
        else:
            self._print(show.plan(lines, self.options["each"]))
            freed = show.size(sum(line.bytes for line in lines if line.action == "drop"))
            self.stdout.write(
                f"Window {self.policy.window.oldest} to {self.policy.window.newest} (UTC): "
                f"{counts['create']} to create, {counts['drop']} to drop ({freed}), "
                f"{counts['keep']} to keep."
            )
            if not room.enough:
                self.stdout.write(
                    f"max_locks_per_transaction is {room.configured}; with {room.needed} every "
                    "connection may read a whole table at once (docs/partitions.md)."
                )
        return 0

    def _maintain(self) -> int:
        begun = time.monotonic()
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
        console = Console(stderr=True)
        with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
            bar = progress.add_task("partitions", total=None)

            def begin(plans: list[DayPlan]) -> None:
                total = sum(len(table.creations) + len(table.deletions) for table in plans)
                progress.update(bar, total=total)

            def report(action: str, part: DayPartition, error: Exception | None) -> None:
                progress.update(bar, advance=1, description=f"{action} {part.full_name}")
                if self.options["each"] and error is None and not self.options["json"]:
                    progress.console.print(f"{action} {part.full_name}: {part.reason}")

            outcome = maintain(self.policy, report, begin)
        self._summary(outcome, time.monotonic() - begun)
        return outcome.exit_code

    def _summary(self, outcome: Outcome, seconds: float) -> None:
        if self.options["json"]:
            self.stdout.write(json.dumps({**outcome.as_object(), "seconds": round(seconds, 3)}))
            return
        for name in outcome.busy:
            self.stderr.write(f"{name}: locked by an open transaction, left for the next run")
        for name in outcome.held:
            self.stderr.write(f"{name}: held, see `partitions plan`; --force drops it")
        for name, error in outcome.broken:
            self.stderr.write(f"{name}: {error}")
        self.stdout.write(
            f"Created {len(outcome.created)}, dropped {len(outcome.dropped)} "
            f"({show.size(outcome.freed)}), held {len(outcome.held)}, busy {len(outcome.busy)}, "
            f"broken {len(outcome.broken)}, in {seconds:.1f} s."
        )

    def _print(self, table: RenderableType) -> None:
        """A table as wide as the terminal, or as wide as it wants where that is a file."""
        console = Console(width=None if sys.stdout.isatty() else 200)
        with console.capture() as text:
            console.print(table)
        self.stdout.write(text.get())
