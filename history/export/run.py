"""Runs an export: days in parallel into a directory, or one after another into a stream."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import IO

from django.db import connection
from psycopg import sql

from history.days import State
from history.entities import Entity
from history.export.formats import FORMATS, Format
from history.partitions.catalog import Partition

# (partition, rows done since the last call)
Progress = Callable[[Partition, int], None]
BUFFER = 1 << 20


@dataclass(frozen=True, slots=True)
class Exported:
    """The file of one day. rows: None if the file existed before."""

    path: Path
    rows: int | None


def chosen(parts: Sequence[Partition], since: date, until: date) -> list[Partition]:
    """The attached days of [since, until), oldest first."""
    days = [part for part in parts if part.state is State.ATTACHED and part.start is not None]
    return sorted(
        (part for part in days if part.start and since <= part.start.date() < until),
        key=lambda part: part.name,
    )


def to_directory(
    entity: Entity,
    parts: Sequence[Partition],
    kind: str,
    folder: Path,
    jobs: int,
    progress: Progress = lambda *_: None,
) -> Iterator[Exported]:
    """Write each day to its own file, `jobs` days at a time. Yields a file when it is complete.

    A file gets its name when it is complete. An existing file is not written again, so that an
    interrupted export can be continued. Each job keeps one block of rows in memory.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(_to_file, entity, part, kind, folder, progress) for part in parts]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            for future in futures:
                future.cancel()


def to_stream(
    entity: Entity,
    parts: Sequence[Partition],
    kind: str,
    sink: IO[bytes],
    progress: Progress = lambda *_: None,
) -> int:
    """Write all days into one stream, in the given order. Returns the number of rows."""
    output: Format = FORMATS[kind](sink, entity)
    connection.ensure_connection()
    rows = 0
    for part in parts:
        rows += output.day(connection.connection, _source(part), _ticking(progress, part))
    output.close()
    sink.flush()
    return rows


def _to_file(
    entity: Entity, part: Partition, kind: str, folder: Path, progress: Progress
) -> Exported:
    target = folder / f"{part.name}.{kind}"
    if target.exists():
        progress(part, part.rows)
        return Exported(target, None)
    try:
        connection.ensure_connection()
        with _complete(target) as sink:
            output: Format = FORMATS[kind](sink, entity)
            rows = output.day(connection.connection, _source(part), _ticking(progress, part))
            output.close()
    finally:
        connection.close()
    return Exported(target, rows)


@contextmanager
def _complete(target: Path) -> Iterator[IO[bytes]]:
    """A file that gets its name when the block ends without an error."""
    unfinished = target.with_name(f".{target.name}.part")
    with unfinished.open("wb", BUFFER) as sink:
        yield sink
        sink.flush()
        os.fsync(sink.fileno())
    unfinished.replace(target)


def _source(part: Partition) -> sql.Composable:
    return sql.Identifier(part.name)


def _ticking(progress: Progress, part: Partition) -> Callable[[int], None]:
    return lambda rows: progress(part, rows)
