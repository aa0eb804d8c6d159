"""`manage.py export`: whole days of one kind of entity, for a data warehouse."""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import psycopg
from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser
from django.db import Error as DatabaseError
from django.db import connection
from psycopg import sql
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from history import clock
from history.entities import BY_NAME, Entity
from history.error_text import describe
from history.export.formats import FORMATS
from history.export.run import chosen, to_directory, to_stream
from history.partitions import catalog
from history.partitions.catalog import Partition
from history.window import Window


class Command(BaseCommand):
    help = "Export the versions of one kind of entity, by whole days, to files or standard output."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--entity", choices=BY_NAME, required=True, help="kind of entity to export"
        )
        parser.add_argument(
            "--from",
            type=date.fromisoformat,
            help="first day, YYYY-MM-DD, UTC (default: oldest day kept)",
        )
        parser.add_argument(
            "--to",
            type=date.fromisoformat,
            help="day after the last one, YYYY-MM-DD, UTC (default: tomorrow)",
        )
        parser.add_argument(
            "--format", choices=FORMATS, default="jsonl", help="format (default jsonl)"
        )
        parser.add_argument(
            "--output",
            type=Path,
            help="directory for one file per day; existing files are not written again, so that an "
            "interrupted export can be continued (default: one stream to standard output)",
        )
        parser.add_argument(
            "--jobs",
            type=int,
            default=2,
            help="days exported at the same time into a directory (default 2)",
        )
        parser.add_argument(
            "--compare", action="store_true", help="then measure a plain COPY TO of the same days"
        )

    def handle(self, *_: object, **options: Any) -> None:
        entity = BY_NAME[options["entity"]]
        now = clock.now()
        window = Window.at(now, settings.ANNALS.retention_days, 0)
        since = options["from"] or window.oldest
        until = options["to"] or window.newest + timedelta(days=1)
        try:
            parts = chosen(catalog.read(connection, [entity.table]), since, until)
            rows, seconds = self._export(entity, parts, options)
            self._say(f"Exported {len(parts)} days, {_rate(rows, seconds)}.")
            if options["compare"] and rows:
                self._compare(parts, options["jobs"], rows / seconds)
        except BrokenPipeError:
            # The reader closed the pipe. Without this Python reports it again at its last flush.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        except (DatabaseError, psycopg.Error, OSError) as error:
            self.stderr.write(f"The export failed: {describe(error)}")
            sys.exit(2)

    def _export(
        self, entity: Entity, parts: list[Partition], options: dict[str, Any]
    ) -> tuple[int, float]:
        """Rows and seconds."""
        kind, folder = options["format"], options["output"]
        begun = time.monotonic()
        with _progress() as progress:
            task = progress.add_task(f"export {entity.name}", total=sum(p.rows for p in parts))

            def tick(_: Partition, rows: int) -> None:
                progress.update(task, advance=rows)

            if folder is None:
                rows = to_stream(entity, parts, kind, sys.stdout.buffer, tick)
            else:
                done = list(to_directory(entity, parts, kind, folder, options["jobs"], tick))
                rows = sum(file.rows or 0 for file in done)
                if there := sum(file.rows is None for file in done):
                    self._say(f"{there} days were exported before.")
        return rows, max(time.monotonic() - begun, 1e-9)

    def _compare(self, parts: list[Partition], jobs: int, rate: float) -> None:
        """Measure COPY TO of the same partitions without output: the upper limit."""
        begun = time.monotonic()
        with ThreadPoolExecutor(jobs) as pool:
            rows = sum(pool.map(_plain_copy, parts))
        seconds = max(time.monotonic() - begun, 1e-9)
        self._say(
            f"Plain COPY TO: {_rate(rows, seconds)}; the export reached "
            f"{rate * seconds / rows:.2f} of it."
        )

    def _say(self, text: str) -> None:
        """Write to standard error: standard output may carry the export."""
        self.stderr.write(text, self.style.SUCCESS)


def _plain_copy(part: Partition) -> int:
    rows = 0
    try:
        connection.ensure_connection()
        query = sql.SQL("COPY {} TO STDOUT").format(sql.Identifier(part.name))
        with connection.connection.cursor() as cursor, cursor.copy(query) as copy:
            for _ in copy:
                rows += 1
    finally:
        connection.close()
    return rows


def _rate(rows: int, seconds: float) -> str:
    return f"{rows:,} rows in {seconds:.1f} s ({rows / seconds:,.0f} rows/s)"


def _progress() -> Progress:
    """A bar on standard error if that is a terminal. The total is an estimate."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, disable=not console.is_terminal)
