"""What `manage.py export` does."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Lock
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import connection
from psycopg import sql

from history import clock, masking
from history.archive.store import Store
from history.entities import BY_NAME, Entity
from history.error_text import describe
from history.exactjson import dumps
from history.export.days import Day, Known, choose
from history.export.run import FAILURES, Export, to_directory, to_stream
from history.management.progress import Progress
from history.models import ArchivedDay
from history.partitions import catalog
from history.signals import ExportRefusedError, begins
from history.window import Window

# The name that the log lines of the command always had.
log = logging.getLogger("history.management.commands.export")


def run(command: BaseCommand, **options: Any) -> None:
    """Export the days. options: as the command declares them. Exits with 1 if some days do not
    exist any more, with 2 if the export failed."""
    entity = BY_NAME[options["entity"]]
    url = settings.ANNALS.archive_url
    try:
        store = Store(url) if url else None
        chosen = choose(_known(entity), options["from"], options["to"])
        mask = _mask(entity, options["unmasked"])
        export = Export(entity, store, options["format"], mask)
        begins.send(type(command), entity=entity, days=chosen.days, options=options)
        rows, seconds, failed = _export(command, export, chosen.days, options)
    except BrokenPipeError:
        # The reader closed the pipe. Without this Python reports it again at its last flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (*FAILURES, ExportRefusedError) as error:
        command.stderr.write(f"The export failed: {describe(error)}")
        sys.exit(2)
    _say(command, f"Exported {len(chosen.days) - failed} days, {_rate(rows, seconds)}.")
    if options["compare"] and rows:
        _compare(command, chosen.days, options["jobs"], rows / seconds)
    for missing in chosen.missing:
        command.stderr.write(f"{entity.table} not exported: {missing}")
    if failed:
        sys.exit(2)
    if chosen.missing:
        sys.exit(1)


def _export(
    command: BaseCommand, export: Export, days: Sequence[Day], options: dict[str, Any]
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
                    command.stderr.write(f"{each.day.name} not exported: {describe(each.error)}")
    if kept:
        _say(command, f"{kept} days were exported before.")
    return rows, max(time.monotonic() - begun, 1e-9), failed


def _compare(command: BaseCommand, days: Sequence[Day], jobs: int, rate: float) -> None:
    """Measure COPY TO of the same partitions without output: the upper limit."""
    if any(day.archived is not None for day in days):
        _say(command, "No comparison: some of the days are in the archive.")
        return
    begun = time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        rows = sum(pool.map(_plain_copy, days))
    seconds = max(time.monotonic() - begun, 1e-9)
    _say(
        command,
        f"Plain COPY TO: {_rate(rows, seconds)}; the export reached "
        f"{rate * seconds / rows:.2f} of it.",
    )


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
