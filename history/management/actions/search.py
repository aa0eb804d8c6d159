"""What `annals search` does."""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error as DatabaseError

from history.counted import counted
from history.error_text import describe
from history.management.progress import Progress
from history.search_index.backfill import backfill, targets


def run(command: BaseCommand, **options: Any) -> None:
    """Index what is not indexed yet. options: as the command declares them. Raises CommandError."""
    done: Counter[str] = Counter(partitions=0, rows=0, keys=0)
    try:
        _index(done, again=options["again"])
    except KeyboardInterrupt:
        raise CommandError(
            f"Interrupted after {_sentence(done)} The next run continues there."
        ) from None
    except DatabaseError as error:
        raise CommandError(
            f"{describe(error)}\nIt ended after {_sentence(done)} The next run continues there."
        ) from None
    command.stdout.write(json.dumps(done) if options["json"] else f"Indexed {_sentence(done)}")


def _index(done: Counter[str], *, again: bool) -> None:
    wanted = targets(again=again)
    pages = sum(target.pages - target.first for target in wanted)
    with Progress("search index, pages of 8 kB", pages, sys.stderr) as progress:
        for target in wanted:
            for step in backfill(target):
                done.update(rows=step.rows, keys=step.keys)
                progress.advance(step.pages)
            done["partitions"] += 1


def _sentence(done: Counter[str]) -> str:
    partitions, rows = counted(done["partitions"], "partition"), counted(done["rows"], "version")
    return f"{partitions}: {rows}, {counted(done['keys'], 'key')}."
