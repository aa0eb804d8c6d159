"""`manage.py export`: whole days of one kind of entity, for a data warehouse."""

from __future__ import annotations

import logging
import os
import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date
from pathlib import Path
from threading import Lock
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser
from django.db import connection
from psycopg import sql

from history import clock, masking
from history.archive.store import Store
from history.entities import BY_NAME, Entity
from history.error_text import describe
from history.exactjson import dumps
from history.export.days import Day, Known, choose
from history.export.formats import FORMATS
from history.export.run import FAILURES, Export, to_directory, to_stream
from history.management.progress import Progress
from history.models import ArchivedDay
from history.partitions import catalog
from history.signals import ExportRefusedError, begins
from history.window import Window

log = logging.getLogger(__name__)


class Command(BaseCommand):
    help = (
        "Export the versions of one kind of entity, by whole days, from the table and the archive, "
        "to files or standard output; exit 0: all days were exported, 1: some do not exist any "
        "more, 2: it failed."
    )
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--entity", choices=BY_NAME, required=True, help="kind of entity to export"
        )
        parser.add_argument(
            "--from",
            type=date.fromisoformat,
            help="first day, YYYY-MM-DD, UTC (default: oldest day in the table or the archive)",
        )
        parser.add_argument(
            "--to",
            type=date.fromisoformat,
            help="day after the last one, YYYY-MM-DD, UTC (default: today, which is not complete)",
        )
        parser.add_argument(
            "--format", choices=FORMATS, default="jsonl", help="format (default jsonl)"
        )
        parser.add_argument(
            "--output",
            type=Path,
            help="directory for one file per day; an existing file is kept if its day still has as "
            "many rows, so that an interrupted export can be continued (default: one stream to "
            "standard output)",
        )
        parser.add_argument(
            "--jobs",
            type=int,
            default=2,
            help="days exported at the same time into a directory (default 2)",
        )
        parser.add_argument("--reason", default="", help="why, kept in the access journal")
        parser.add_argument(
            "--unmasked",
            type=_reason,
            metavar="REASON",
            help="export sensitive fields as they are; log and access journal keep the reason "
            "(default: masked)",
        )
        parser.add_argument(
            "--compare", action="store_true", help="then measure a plain COPY TO of the same days"
        )

    def handle(self, *_: object, **options: Any) -> None:
        entity = BY_NAME[options["entity"]]
        url = settings.ANNALS.archive_url
        try:
            store = Store(url) if url else None
            chosen = choose(_known(entity), options["from"], options["to"])
            mask = _mask(entity, options["unmasked"])
            export = Export(entity, store, options["format"], mask)
            begins.send(Command, entity=entity, days=chosen.days, options=options)
            rows, seconds, failed = self._export(export, chosen.days, options)
        except BrokenPipeError:
            # The reader closed the pipe. Without this Python reports it again at its last flush.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        except (*FAILURES, ExportRefusedError) as error:
            self.stderr.write(f"The export failed: {describe(error)}")
            sys.exit(2)
        self._say(f"Exported {len(chosen.days) - failed} days, {_rate(rows, seconds)}.")
        if options["compare"] and rows:
            self._compare(chosen.days, options["jobs"], rows / seconds)
        for missing in chosen.missing:
            self.stderr.write(f"{entity.table} not exported: {missing}")
        if failed:
            sys.exit(2)
        if chosen.missing:
            sys.exit(1)

    def _export(
        self, export: Export, days: Sequence[Day], options: dict[str, Any]
    ) -> tuple[int, float, int]:
        """Rows, seconds, and how many days failed."""
        folder, rows, failed, kept = options["output"], 0, 0, 0
        begun, lock = time.monotonic(), Lock()
        total = sum(day.rows for day in days)
        with Progress(f"export {export.entity.name}, rows", total, sys.stderr) as progress:

            def tick(done: int) -> None:
                with lock:
                    progress.advance(done)

            counted = replace(export, tick=tick)
            if folder is None:
                rows = to_stream(counted, days, sys.stdout.buffer)
            else:
                for each in to_directory(counted, days, folder, options["jobs"]):
                    rows, kept = rows + each.rows, kept + each.kept
                    if each.error is not None:
                        failed += 1
                        self.stderr.write(f"{each.day.name} not exported: {describe(each.error)}")
        if kept:
            self._say(f"{kept} days were exported before.")
        return rows, max(time.monotonic() - begun, 1e-9), failed

    def _compare(self, days: Sequence[Day], jobs: int, rate: float) -> None:
        """Measure COPY TO of the same partitions without output: the upper limit."""
        if any(day.archived is not None for day in days):
            self._say("No comparison: some of the days are in the archive.")
            return
        begun = time.monotonic()
        with ThreadPoolExecutor(jobs) as pool:
            rows = sum(pool.map(_plain_copy, days))
        seconds = max(time.monotonic() - begun, 1e-9)
        self._say(
            f"Plain COPY TO: {_rate(rows, seconds)}; the export reached "
            f"{rate * seconds / rows:.2f} of it."
        )

    def _say(self, text: str) -> None:
        """Write to standard error: standard output may carry the export."""
        self.stderr.write(text, self.style.SUCCESS)


def _reason(text: str) -> str:
    """A reason of at least one word. Raises ArgumentTypeError."""
    if not text.strip():
        raise ArgumentTypeError("say why: the reason must not be empty")
    return text.strip()


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


def _plain_copy(day: Day) -> int:
    rows = 0
    try:
        connection.ensure_connection()
        query = sql.SQL("COPY {} TO STDOUT").format(sql.Identifier(day.name))
        with connection.connection.cursor() as cursor, cursor.copy(query) as copy:
            for _ in copy:
                rows += 1
    finally:
        connection.close()
    return rows


def _rate(rows: int, seconds: float) -> str:
    return f"{rows:,} rows in {seconds:.1f} s ({rows / seconds:,.0f} rows/s)"
