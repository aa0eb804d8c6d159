"""`annals search index`: makes stored versions searchable by newly declared business keys."""

import json
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from history.common.text_tables import pluralize


class Command(BaseCommand):
    help = "Maintain the table of business keys, by which documents are found."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        index = actions.add_parser(
            "index",
            help="index stored versions by business keys that were declared later; run it when all "
            "consumers have the new declaration. Consumers may go on meanwhile. On a cluster the "
            "command also lists the children of all applications: run it after `annals "
            "distribute`, and after an update from a release that does not list them",
        )
        index.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *_: Any, **options: Any) -> None:
        from django.db import Error as DatabaseError

        from history.common.error_text import describe

        counts: Counter[str] = Counter(partitions=0, rows=0, keys=0)
        try:
            _index_keys(counts, self.stderr.write)
        except KeyboardInterrupt:
            raise CommandError(f"Interrupted after {_format_counts(counts)}") from None
        except DatabaseError as error:
            raise CommandError(
                f"{describe(error)}\nThe command ended after {_format_counts(counts)}"
            ) from None
        self.stdout.write(
            json.dumps(counts) if options["json"] else f"Indexed {_format_counts(counts)}"
        )
        if counts["damaged"]:
            sys.exit(1)


def _index_keys(counts: Counter[str], write_line: Callable[[str], object]) -> None:
    from history.management.progress import show_progress
    from history.retention.search_keys import backfill_target, list_targets, note_children_listed

    index_targets = list_targets()
    pages = sum(target.pages for target in index_targets)
    with show_progress("search index, pages of 8 kB", pages, sys.stderr) as advance:
        for target in index_targets:
            for step in backfill_target(target):
                counts.update(rows=step.rows, keys=step.keys)
                for line in step.damaged:
                    counts["damaged"] += 1
                    write_line(f"not indexed: {line}")
                advance(step.pages)
            counts["partitions"] += 1
    note_children_listed()


def _format_counts(counts: Counter[str]) -> str:
    partitions, rows = (
        pluralize(counts["partitions"], "partition"),
        pluralize(counts["rows"], "version"),
    )
    return f"{partitions}: {rows}, {pluralize(counts['keys'], 'key')}."
