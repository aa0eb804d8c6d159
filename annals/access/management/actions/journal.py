"""What `annals journal` does."""

from __future__ import annotations

import csv
import json
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils.translation import override

from annals.access.journal import read
from annals.access.journal.read import COLUMNS, Filters, Line, cell, lines
from annals.access.journal.words import Action, Outcome
from annals.access.journal.write import JournalError, record
from history.counted import counted


def run(command: BaseCommand, **options: Any) -> None:
    """Print the entries, newest first. options: as the command declares them. Raises
    CommandError if the access journal cannot be written."""
    application = options["application"]
    since, until = options["since"], options["until"]
    if not application.strip():
        raise CommandError("APPLICATION must be the id of an application.")
    if since and until and since > until:
        raise CommandError(f"--from {since} is after --to {until}.")
    try:
        record(Action.JOURNAL, "manage.py journal", options["reason"], application=application)
    except JournalError as error:
        raise CommandError(f"the access journal cannot be written: {error}") from None
    filters = Filters(
        application=application,
        outcome="" if options["all"] else Outcome.SHOWN,
        since=_midnight(since),
        until=_midnight(until, days=1),
    )
    with override("en"):
        found = lines(read.rows(filters))
        PRINTERS[options["format"]](command, list(found))


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
    writer = csv.writer(command.stdout)
    writer.writerow(COLUMNS)
    writer.writerows([cell(line.row, name) for name in COLUMNS] for line in found)


def _json(command: BaseCommand, found: list[Line]) -> None:
    objects = [{name: str(getattr(line.row, name)) for name in COLUMNS} for line in found]
    command.stdout.write(json.dumps(objects, ensure_ascii=False))


def _midnight(day: date | None, days: int = 0) -> datetime | None:
    return None if day is None else datetime.combine(day + timedelta(days), time(), UTC)


PRINTERS = {"text": _text, "csv": _csv, "json": _json}
