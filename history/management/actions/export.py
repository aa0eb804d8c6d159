"""What `annals export` does."""

import json
import logging
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connection

from history import masking
from history.archive.store import Store
from history.base import clock
from history.base.error_text import describe
from history.base.signals import NotJournaledError, begins
from history.base.table import counted
from history.daily.window import Window
from history.documents.exactjson import dumps
from history.entities import BY_NAME, Entity
from history.export.days import Chosen, Day, Known, choose
from history.export.run import FAILURES, Export, to_directory, to_stream
from history.failure.sentences import known
from history.management.progress import progress
from history.models import ArchivedDay
from history.partitions import catalog

# The name that the log lines of the command always had.
log = logging.getLogger("history.management.commands.export")


@dataclass
class Done:
    """What was exported. failed: names of days, each with the reason."""

    rows: int = 0
    seconds: float = 0.0
    kept: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)


def run(command: BaseCommand, **options: Any) -> None:
    """Export the days. options: as the command declares them. Exits with 1 if some days do not
    exist any more, with 2 if the export failed."""
    entity = BY_NAME[options["entity"]]
    url = settings.ANNALS.archive_url
    try:
        store = Store(url) if url else None
        chosen = choose(_known(entity), options["from"], options["to"])
        _refuse_nothing(entity, chosen, options)
        mask = _mask(entity, options["unmasked"])
        export = Export(entity, store, options["format"], mask)
        begins.send(type(command), entity=entity, days=chosen.days, options=options)
        done = _export(command, export, chosen.days, options)
    except BrokenPipeError:
        raise  # the reader of standard output has left
    except (*FAILURES, NotJournaledError) as error:
        raise CommandError(f"the export failed: {_why(error)}", returncode=2) from error
    if options["json"]:
        # Standard output may carry the export.
        out = command.stdout if options["output"] else command.stderr
        out.write(json.dumps(_as_object(entity, chosen, done)), str)
    else:
        _print(command, chosen, done)
        for missing in chosen.missing:
            command.stderr.write(f"{entity.table} not exported: {missing}")
    if done.failed:
        sys.exit(2)
    if chosen.missing:
        sys.exit(1)


def _refuse_nothing(entity: Entity, chosen: Chosen, options: dict[str, Any]) -> None:
    """Raises CommandError where there is no day to export, and none that is gone."""
    since, until = options["from"], options["to"]
    if since and until and since >= until:
        raise CommandError(
            f"--from {since} is not before --to {until}, which is the day after the last one.",
            returncode=2,
        )
    if not chosen.days and not chosen.missing and (since or until):
        raise CommandError(
            f"{entity.table} has no day from {since or 'the oldest'} to {until or 'today'}: "
            "`partitions list` says which it has.",
            returncode=2,
        )


def _export(
    command: BaseCommand, export: Export, days: Sequence[Day], options: dict[str, Any]
) -> Done:
    """Export the days, and report each at once that failed, unless as JSON."""
    folder, done = options["output"], Done()
    begun = time.monotonic()
    total = sum(day.rows for day in days)
    with progress(f"export {export.entity.name}, rows", total, sys.stderr) as tick:
        counted = replace(export, tick=tick)
        if folder is None:
            done.rows = to_stream(counted, days, sys.stdout.buffer)
        else:
            for each in to_directory(counted, days, folder, options["jobs"]):
                done.rows, done.kept = done.rows + each.rows, done.kept + each.kept
                if each.error is not None:
                    done.failed.append((each.day.name, _why(each.error)))
                    if not options["json"]:
                        name, why = done.failed[-1]
                        command.stderr.write(f"{name} not exported: {why}")
    done.seconds = max(time.monotonic() - begun, 1e-9)
    return done


def _print(command: BaseCommand, chosen: Chosen, done: Done) -> None:
    """The sums, as sentences."""
    if done.kept:
        _say(command, f"{counted(done.kept, 'day was', 'days were')} exported before.")
    days = len(chosen.days) - len(done.failed)
    _say(command, f"Exported {counted(days, 'day')}, {_rate(done)}.")


def _as_object(entity: Entity, chosen: Chosen, done: Done) -> dict[str, Any]:
    """The sums and what was not exported, as JSON values."""
    return {
        "table": entity.table,
        "days": len(chosen.days) - len(done.failed),
        "before": done.kept,
        "rows": done.rows,
        "seconds": round(done.seconds, 3),
        "failed": [{"name": name, "why": why} for name, why in done.failed],
        "missing": [
            {"first": str(each.first), "last": str(each.last), "why": each.why}
            for each in chosen.missing
        ],
    }


def _say(command: BaseCommand, text: str) -> None:
    """Write to standard error: standard output may carry the export."""
    command.stderr.write(text, command.style.SUCCESS)


def _mask(entity: Entity, reason: str | None) -> masking.Mask | None:
    """How to mask the documents; None with a reason, and where nothing is marked."""
    mask = masking.stored_mask(entity)
    if mask is None or reason is None:
        return mask
    quoted = dumps(reason).decode()
    log.warning("unmasked export of %s by user %d: %s", entity.name, os.getuid(), quoted)
    return None


def _known(entity: Entity) -> Known:
    """The days of a table, from the database."""
    archived = ArchivedDay.objects.filter(table=entity.table).values_list("day", "rows")
    return Known(
        entity,
        catalog.read(connection, [entity.table]),
        dict(archived),
        settings.ANNALS.archive_url is not None,
        Window.at(clock.now(), settings.ANNALS.retention_days, 0),
    )


def _why(error: Exception) -> str:
    return known(error) or describe(error)


def _rate(done: Done) -> str:
    rate = f"{done.rows / done.seconds:,.0f} rows/s"
    return f"{counted(done.rows, 'row')} in {done.seconds:.1f} s ({rate})"
