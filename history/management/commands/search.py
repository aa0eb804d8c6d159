"""`annals search index`: indexes what was stored before a business key was declared."""

import json
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from history.base.table import counted


class Command(BaseCommand):
    help = "Keep the table of business keys, by which documents are found."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        index = actions.add_parser(
            "index",
            help="index the stored versions for keys that were declared after they were stored; "
            "run it when all consumers have the new declaration. It may run next to them",
        )
        index.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *_: Any, **options: Any) -> None:
        from django.db import Error as DatabaseError

        from history.base.error_text import describe

        done: Counter[str] = Counter(partitions=0, rows=0, keys=0)
        try:
            _index(done, self.stderr.write)
        except KeyboardInterrupt:
            raise CommandError(f"Interrupted after {_sentence(done)}") from None
        except DatabaseError as error:
            raise CommandError(f"{describe(error)}\nIt ended after {_sentence(done)}") from None
        self.stdout.write(json.dumps(done) if options["json"] else f"Indexed {_sentence(done)}")
        if done["damaged"]:
            sys.exit(1)


def _index(done: Counter[str], say: Callable[[str], object]) -> None:
    from history.management.progress import progress
    from history.search_index.backfill import backfill, targets

    wanted = targets()
    pages = sum(target.pages for target in wanted)
    with progress("search index, pages of 8 kB", pages, sys.stderr) as advance:
        for target in wanted:
            for step in backfill(target):
                done.update(rows=step.rows, keys=step.keys)
                for line in step.damaged:
                    done["damaged"] += 1
                    say(f"not indexed: {line}")
                advance(step.pages)
            done["partitions"] += 1


def _sentence(done: Counter[str]) -> str:
    partitions, rows = counted(done["partitions"], "partition"), counted(done["rows"], "version")
    return f"{partitions}: {rows}, {counted(done['keys'], 'key')}."
