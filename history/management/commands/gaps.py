"""`manage.py gaps`: versions that never arrived."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from history.entities import BY_NAME
from history.late import late


class Command(BaseCommand):
    help = (
        "Find versions that never arrived in the days that got rows since the last run, close the "
        "gaps whose versions came late, and print the sums by kind and service."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print JSON")
        commands = parser.add_subparsers(dest="command", metavar="COMMAND")
        listed = commands.add_parser("list", help="print the gaps, the latest found first")
        add = listed.add_argument
        add("--entity", choices=BY_NAME, metavar="KIND", help="only of this kind of entity")
        add("--client", help="only before versions of this service, by its client id")
        add("--closed", action="store_true", help="the closed ones instead of the open ones")
        add("--limit", type=int, default=100, help="how many at most (default %(default)s)")
        add("--before", type=int, metavar="ID", help="only gaps with a lower id: the next page")
        add("--json", action="store_true", dest="list_json", help="print JSON lines")

    def handle(self, *_: Any, **options: Any) -> None:
        late("history.management.actions.gaps.Run")(self).handle(**options)
