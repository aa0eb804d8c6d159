"""`annals export`: exports whole days of one kind, for a data warehouse."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from history.common.signals import NotJournaledError, export_begins
from history.common.text_tables import pluralize
from history.kinds.entities import BY_NAME, EntityKind
from history.management.numbers import parse_day

if TYPE_CHECKING:
    from history.policy import masking
    from history.retention.export.days import ExportDay, MissingDays
    from history.retention.export.run import ExportJob


log = logging.getLogger(__name__)


class Command(BaseCommand):
    help = (
        "Export the versions of one kind of entity, by whole days, from the table and the archive, "
        "to files or standard output; exit 0: all days were exported, 1: some days do not exist "
        "any more or some versions cannot be read, 2: the export failed."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--entity", choices=BY_NAME, required=True, help="kind of entity to export"
        )
        parser.add_argument(
            "--from",
            type=parse_day,
            help="first day, YYYY-MM-DD, UTC (default: oldest day in the table or the archive)",
        )
        parser.add_argument(
            "--to",
            type=parse_day,
            help="day after the last one, YYYY-MM-DD, UTC (default: today, which is not complete)",
        )
        parser.add_argument(
            "--format", choices=("jsonl", "parquet"), default="jsonl", help="format (default jsonl)"
        )
        parser.add_argument(
            "--output",
            type=Path,
            help="directory for one file per day; an existing file is kept if its day still has as "
            "many rows, so that an interrupted export can be continued (default: one stream to "
            "standard output)",
        )
        parser.add_argument("--reason", default="", help="why, kept in the access journal")
        parser.add_argument(
            "--unmasked",
            type=_parse_reason,
            metavar="REASON",
            help="export sensitive fields as they are; log and access journal keep the reason "
            "(default: masked)",
        )
        parser.add_argument(
            "--json",
            action="store_true",
            help="print the sums as JSON: with --output to standard output, else to standard "
            "error as its last line",
        )

    def handle(self, *_: Any, **options: Any) -> None:
        """Export the days that the options name.

        Exit with 1 if some days do not exist any more or some versions cannot be read, with 2 if
        the export failed.
        """
        from history.retention.archive.store import ArchiveStore
        from history.retention.export.days import choose_days
        from history.retention.export.run import FAILURES, ExportJob
        from history.store import quarantine_queries

        entity = BY_NAME[options["entity"]]
        url = settings.ANNALS.archive_url
        began = time.monotonic()
        try:
            store = ArchiveStore(url) if url else None
            days, missing = choose_days(entity, options["from"], options["to"])
            if not days and not missing:
                _refuse_missing_days(entity, options["from"], options["to"])
            mask = _choose_mask(entity, options["unmasked"])
            export = ExportJob(entity, store, options["format"], mask)
            # The open messages are counted before the rows are read. If a message is stored
            # meanwhile, it is counted, and its version may be in the files.
            quarantined_count = quarantine_queries.count_open_messages(
                entity, *_get_span(days, missing)
            )
            export_begins.send(type(self), entity=entity, days=days, options=options)
            sums = _export_days(self, export, days, options)
        except BrokenPipeError:
            raise  # the program that reads standard output has ended
        except (*FAILURES, NotJournaledError) as error:
            raise CommandError(
                f"the export failed: {_explain_error(error)}", returncode=2
            ) from error
        sums["quarantined"] = quarantined_count
        sums["seconds"] = round(time.monotonic() - began, 3)
        sums["missing"] = [
            {
                "first": str(missing_days.first),
                "last": str(missing_days.last),
                "why": missing_days.reason,
            }
            for missing_days in missing
        ]
        if options["json"]:
            # Standard output may carry the export.
            out = self.stdout if options["output"] else self.stderr
            out.write(json.dumps(sums), str)
        else:
            _print_sums(self, sums)
            for missing_days in missing:
                self.stderr.write(f"{entity.table} not exported: {missing_days}")
            if quarantined_count:
                self.stderr.write(
                    f"{entity.table}: the export is not complete. "
                    f"{pluralize(quarantined_count, 'message', 'messages')} of these days"
                    " could not be stored; `annals quarantine list` shows them."
                )
        if sums["failed"]:
            sys.exit(2)
        if missing or sums["damaged"]:
            sys.exit(1)


def _parse_reason(text: str) -> str:
    """Read a reason of at least one word.

    Raises:
        ArgumentTypeError: The reason is empty.
    """
    if not text.strip():
        raise ArgumentTypeError("say why: the reason must not be empty")
    return text.strip()


def _get_span(
    days: Sequence[ExportDay], missing: Sequence[MissingDays]
) -> tuple[date | None, date | None]:
    """Return the first day, and the day after the last one. Both are None if there are no days."""
    firsts = [*(day.day for day in days), *(missing_days.first for missing_days in missing)]
    lasts = [*(day.day for day in days), *(missing_days.last for missing_days in missing)]
    return min(firsts, default=None), max(lasts) + timedelta(days=1) if lasts else None


def _refuse_missing_days(entity: EntityKind, since: date | None, until: date | None) -> None:
    """Raise CommandError if the command line has --from or --to. Call this if no day was found.

    Without --from and --to, a table without days is not an error.
    """
    if since and until and since >= until:
        raise CommandError(
            f"--from {since} must be before --to {until}. --to is the day after the last day to "
            "export.",
            returncode=2,
        )
    if since or until:
        limits = [f"from {since} on"] if since else []
        limits += [f"before {until}"] if until else []
        raise CommandError(
            f"{entity.table} has no day in the requested range ({' and '.join(limits)}). "
            "`partitions list` shows all days of the table.",
            returncode=2,
        )


def _export_days(
    command: BaseCommand, export: ExportJob, days: Sequence[ExportDay], options: dict[str, Any]
) -> dict[str, Any]:
    """Export the days. Without --json, report a failed day as soon as it fails.

    Returns:
        The number of days, the number of rows, the failed days, and the unreadable rows.
    """
    from history.management.progress import show_progress
    from history.retention.export.run import to_directory, to_stream

    folder, rows, kept_days = options["output"], 0, 0
    failed: list[dict[str, str]] = []
    damaged: list[dict[str, str]] = []
    total = sum(day.rows for day in days)
    with show_progress(f"export {export.entity.name}, rows", total, sys.stderr) as tick:
        counted = replace(export, tick=tick)
        if folder is None:
            exported = to_stream(counted, days, sys.stdout.buffer)
        else:
            exported = to_directory(counted, days, folder)
        for exported_day in exported:
            rows, kept_days = rows + exported_day.rows, kept_days + exported_day.was_exported
            lines = []
            if exported_day.error is not None:
                failed.append(
                    {"name": exported_day.day.name, "why": _explain_error(exported_day.error)}
                )
                lines.append("{name} not exported: {why}".format(**failed[-1]))
            for complaint in exported_day.damaged:
                damaged.append({"name": exported_day.day.name, "why": complaint})
                lines.append(
                    f"{exported_day.day.name} was exported without versions that cannot be read: "
                    f"{complaint}"
                )
            if not options["json"]:
                for line in lines:
                    command.stderr.write(line)
    return {
        "table": export.entity.table,
        "days": len(days) - len(failed),
        "before": kept_days,
        "rows": rows,
        "failed": failed,
        "damaged": damaged,
    }


def _print_sums(command: BaseCommand, sums: dict[str, Any]) -> None:
    """Print how many days and rows were exported, and how fast.

    Prints to standard error, because the export itself can go to standard output.
    """
    style = command.style.SUCCESS
    if kept_days := sums["before"]:
        command.stderr.write(
            f"{pluralize(kept_days, 'day was', 'days were')} exported before.", style
        )
    rows, seconds = sums["rows"], sums["seconds"]
    text = f"Exported {pluralize(sums['days'], 'day')}, {pluralize(rows, 'row')} in {seconds:.1f} s"
    command.stderr.write(f"{text} ({rows / max(seconds, 0.001):,.0f} rows/s).", style)


def _choose_mask(entity: EntityKind, reason: str | None) -> masking.KindMask | None:
    """Return the mask for the exported snapshots.

    Args:
        reason: Why the operator exports marked fields unmasked. None: mask them.

    Returns:
        None if nothing is marked, or a `reason` is given.
    """
    from history.documents.exactjson import dumps
    from history.policy import masking

    mask = masking.load_stored_mask(entity)
    if mask is None:
        return None
    if reason is None:
        _refuse_own_key()
        return mask
    quoted = dumps(reason).decode()
    log.warning(
        "unmasked export of %s by the operating system's user %d, reason: %s",
        entity.name,
        os.getuid(),
        quoted,
    )
    return None


def _refuse_own_key() -> None:
    """Raise CommandError if ANNALS_SECRET_KEY is not set, except in a demo.

    Annals would make a key for this process. With this key, a value would get a different token
    than on the screens and in the next export.
    """
    if settings.ANNALS.secret_key is None and not settings.ANNALS.demo:
        raise CommandError(
            "ANNALS_SECRET_KEY is missing: Annals makes the tokens of masked values with it. Set "
            "it to the same value as for the web, and export again.",
            returncode=2,
        )


def _explain_error(error: Exception) -> str:
    from history.common.error_sentences import explain_known_error
    from history.common.error_text import describe

    return explain_known_error(error) or describe(error)
