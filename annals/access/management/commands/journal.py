"""`annals journal`: who looked at an application, to tell the person whose application it is."""

from __future__ import annotations

import csv
import json
from argparse import ArgumentParser
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError

from history.base.table import counted
from history.management.numbers import day

if TYPE_CHECKING:
    from annals.access.journal.read import Line


class Command(BaseCommand):
    help = (
        "List who looked at an application or at one of its children, newest first. The list is "
        "itself a look into the access journal, and leaves an entry there."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("application", help="id of the application")
        parser.add_argument(
            "--from",
            type=day,
            dest="since",
            help="first day, YYYY-MM-DD, UTC (default: the oldest day of the journal)",
        )
        parser.add_argument(
            "--to", type=day, dest="until", help="last day, YYYY-MM-DD, UTC (default: today)"
        )
        parser.add_argument(
            "--all", action="store_true", help="also attempts that were refused or failed"
        )
        parser.add_argument("--reason", default="", help="why, kept in the access journal")
        parser.add_argument(
            "--format",
            choices=("text", "csv", "json"),
            default="text",
            help="format (default %(default)s)",
        )

        parser.add_argument(
            "--json",
            action="store_const",
            const="json",
            dest="format",
            help="print JSON, as --format json",
        )

    def handle(self, *_: Any, **options: Any) -> None:
        from django.utils.translation import override

        from annals.access.journal import read
        from annals.access.journal.read import Filters, lines
        from annals.access.journal.words import Action, Outcome
        from annals.access.journal.write import record

        application = options["application"]
        since, until = options["since"], options["until"]
        if not application.strip():
            raise CommandError("APPLICATION must be the id of an application.")
        if since and until and since > until:
            raise CommandError(f"--from {since} is after --to {until}.")
        record(Action.JOURNAL, "manage.py journal", options["reason"], application=application)
        filters = Filters(
            application=application,
            outcome="" if options["all"] else Outcome.SHOWN,
            since=_midnight(since),
            until=_midnight(until, days=1),
        )
        with override("en"):
            found = lines(read.rows(filters))
            PRINTERS[options["format"]](self, list(found))


def _text(command: BaseCommand, found: list[Line]) -> None:
    for line in found:
        row = line.row
        now = f", now {line.now}" if line.now else ""
        who = f"{row.login} ({line.who or line.actor}{now})" if row.login else line.actor
        what = " ".join(filter(None, (line.action, row.entity, row.entity_id, row.path)))
        why = f", reason: {row.reason}" if row.reason else ""
        at = f"{row.at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
        command.stdout.write(f"{at} UTC  {who}: {what}, {line.outcome}{why}")
    command.stdout.write(counted(len(found), "entry", "entries") + ".")


def _csv(command: BaseCommand, found: list[Line]) -> None:
    from annals.access.journal.read import COLUMNS, cell

    writer = csv.writer(command.stdout)
    writer.writerow(COLUMNS)
    writer.writerows([cell(line.row, name) for name in COLUMNS] for line in found)


def _json(command: BaseCommand, found: list[Line]) -> None:
    from annals.access.journal.read import COLUMNS

    objects = [{name: str(getattr(line.row, name)) for name in COLUMNS} for line in found]
    command.stdout.write(json.dumps(objects, ensure_ascii=False))


def _midnight(day: date | None, days: int = 0) -> datetime | None:
    return None if day is None else datetime.combine(day + timedelta(days), time(), UTC)


PRINTERS = {"text": _text, "csv": _csv, "json": _json}
