"""What `annals export` does."""

import json
import logging
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from history import masking, quarantined
from history.archive.store import Store
from history.base.error_text import describe
from history.base.signals import NotJournaledError, begins
from history.base.table import counted
from history.documents.exactjson import dumps
from history.entities import BY_NAME, Entity
from history.export.days import Day, Missing, choose
from history.export.run import FAILURES, Export, to_directory, to_stream
from history.failure.sentences import known
from history.management.progress import progress

# The name that the log lines of the command always had.
log = logging.getLogger("history.management.commands.export")


def run(command: BaseCommand, **options: Any) -> None:
    """Export the days. options: as the command declares them. Exits with 1 if some days do not
    exist any more or some versions cannot be read, with 2 if the export failed."""
    entity = BY_NAME[options["entity"]]
    url = settings.ANNALS.archive_url
    begun = time.monotonic()
    try:
        store = Store(url) if url else None
        days, missing = choose(entity, options["from"], options["to"])
        if not days and not missing:
            _refuse_nothing(entity, options["from"], options["to"])
        mask = _mask(entity, options["unmasked"])
        export = Export(entity, store, options["format"], mask)
        # Before the rows: what comes out of quarantine meanwhile is named, and may be in the files.
        held = quarantined.count_open_messages(entity, *_span(days, missing))
        begins.send(type(command), entity=entity, days=days, options=options)
        done = _export(command, export, days, options)
    except BrokenPipeError:
        raise  # the reader of standard output has left
    except (*FAILURES, NotJournaledError) as error:
        raise CommandError(f"the export failed: {_why(error)}", returncode=2) from error
    done["quarantined"] = held
    done["seconds"] = round(time.monotonic() - begun, 3)
    done["missing"] = [
        {"first": str(each.first), "last": str(each.last), "why": each.why} for each in missing
    ]
    if options["json"]:
        # Standard output may carry the export.
        out = command.stdout if options["output"] else command.stderr
        out.write(json.dumps(done), str)
    else:
        _print(command, done)
        for each in missing:
            command.stderr.write(f"{entity.table} not exported: {each}")
        if held:
            command.stderr.write(
                f"{entity.table} is not whole: {counted(held, 'message', 'messages')} of these days"
                " came and could not be stored; `annals quarantine list` has them."
            )
    if done["failed"]:
        sys.exit(2)
    if missing or done["damaged"]:
        sys.exit(1)


def _span(days: Sequence[Day], missing: Sequence[Missing]) -> tuple[date | None, date | None]:
    """Return the first of the days, and the day after the last one; None where there is no day."""
    firsts = [*(day.day for day in days), *(each.first for each in missing)]
    lasts = [*(day.day for day in days), *(each.last for each in missing)]
    return min(firsts, default=None), max(lasts) + timedelta(days=1) if lasts else None


def _refuse_nothing(entity: Entity, since: date | None, until: date | None) -> None:
    """Raises CommandError where the command line names days, and there is none of them."""
    if since and until and since >= until:
        raise CommandError(
            f"--from {since} is not before --to {until}, which is the day after the last one.",
            returncode=2,
        )
    if since or until:
        raise CommandError(
            f"{entity.table} has no day from {since or 'the oldest'} to {until or 'today'}: "
            "`partitions list` says which it has.",
            returncode=2,
        )


def _export(
    command: BaseCommand, export: Export, days: Sequence[Day], options: dict[str, Any]
) -> dict[str, Any]:
    """Export the days, and report each at once that failed, unless as JSON. Returns the sums."""
    folder, rows, kept = options["output"], 0, 0
    failed: list[dict[str, str]] = []
    damaged: list[dict[str, str]] = []
    total = sum(day.rows for day in days)
    with progress(f"export {export.entity.name}, rows", total, sys.stderr) as tick:
        counted = replace(export, tick=tick)
        if folder is None:
            exported = to_stream(counted, days, sys.stdout.buffer)
        else:
            exported = to_directory(counted, days, folder)
        for each in exported:
            rows, kept = rows + each.rows, kept + each.kept
            lines = []
            if each.error is not None:
                failed.append({"name": each.day.name, "why": _why(each.error)})
                lines.append("{name} not exported: {why}".format(**failed[-1]))
            for why in each.damaged:
                damaged.append({"name": each.day.name, "why": why})
                lines.append(f"{each.day.name} exported without what cannot be read: {why}")
            if not options["json"]:
                for line in lines:
                    command.stderr.write(line)
    return {
        "table": export.entity.table,
        "days": len(days) - len(failed),
        "before": kept,
        "rows": rows,
        "failed": failed,
        "damaged": damaged,
    }


def _print(command: BaseCommand, done: dict[str, Any]) -> None:
    """The sums, as sentences, to standard error: standard output may carry the export."""
    said = command.style.SUCCESS
    if kept := done["before"]:
        command.stderr.write(f"{counted(kept, 'day was', 'days were')} exported before.", said)
    rows, seconds = done["rows"], done["seconds"]
    text = f"Exported {counted(done['days'], 'day')}, {counted(rows, 'row')} in {seconds:.1f} s"
    command.stderr.write(f"{text} ({rows / max(seconds, 0.001):,.0f} rows/s).", said)


def _mask(entity: Entity, reason: str | None) -> masking.Mask | None:
    """How to mask the documents; None with a reason, and where nothing is marked."""
    mask = masking.stored_mask(entity)
    if mask is None:
        return None
    if reason is None:
        _refuse_own_key()
        return mask
    quoted = dumps(reason).decode()
    log.warning("unmasked export of %s by user %d: %s", entity.name, os.getuid(), quoted)
    return None


def _refuse_own_key() -> None:
    """Refuse to mask with a key that this process would make: equal values would get other tokens
    than on the screens and in the next export. Raises CommandError."""
    if settings.ANNALS.secret_key is None and not settings.ANNALS.demo:
        raise CommandError(
            "ANNALS_SECRET_KEY is missing: the tokens of masked values are made with it. Set it to "
            "the key that the web has, and export again.",
            returncode=2,
        )


def _why(error: Exception) -> str:
    return known(error) or describe(error)
