"""`annals search index`: indexes what was stored before a business key was declared."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from history.late import late


class Command(BaseCommand):
    help = "Keep the table of business keys, by which documents are found."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        index = actions.add_parser(
            "index",
            help="index the stored versions for keys that were declared after they were stored; "
            "run it when all consumers have the new declaration. It may run next to them, and "
            "continues where it was interrupted",
        )
        index.add_argument(
            "--again", action="store_true", help="also partitions that are indexed already"
        )
        index.add_argument("--json", action="store_true", help="JSON on stdout")

    def handle(self, *_: Any, **options: Any) -> None:
        late("history.management.actions.search.run")(self, **options)
