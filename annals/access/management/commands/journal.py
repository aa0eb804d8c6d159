"""`annals journal`: who looked at an application, to tell the person whose application it is."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from history.late import late
from history.management.numbers import day


class Command(BaseCommand):
    help = (
        "List who looked at an application or at one of its children, newest first. The list is "
        "itself a look into the access journal, and leaves an entry there."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("application", help="id of the application")
        parser.add_argument(
            "--from",
            type=day,
            dest="since",
            help="first day, YYYY-MM-DD, UTC (default: the oldest day of the journal)",
        )
        parser.add_argument(
            "--to",
            type=day,
            dest="until",
            help="last day, YYYY-MM-DD, UTC (default: today)",
        )
        parser.add_argument(
            "--all", action="store_true", help="also attempts that were refused or failed"
        )
        parser.add_argument("--reason", default="", help="why, kept in the access journal")
        parser.add_argument(
            "--format",
            choices=("text", "csv", "json"),
            default="text",
            help="format (default %(default)s)",
        )

        parser.add_argument(
            "--json",
            action="store_const",
            const="json",
            dest="format",
            help="print JSON, as --format json",
        )

    def handle(self, *_: Any, **options: Any) -> None:
        late("annals.access.management.actions.journal.run")(self, **options)
