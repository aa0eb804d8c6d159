"""`annals gaps`: versions that never arrived."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from history.kinds.entities import BY_NAME
from history.management.numbers import MAX_ID, make_whole_parser


class Command(BaseCommand):
    help = (
        "Find versions that never arrived in the days that got rows since the last run, close the "
        "gaps whose versions came late, and print the sums by kind and service."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print JSON")
        commands = parser.add_subparsers(dest="command", metavar="COMMAND")
        heal = commands.add_parser(
            "heal",
            help="ask the services for the missing versions, by messages to the topic annals.gaps; "
            "exit 0: asked, 2: it failed",
        )
        add = heal.add_argument
        add("--entity", choices=BY_NAME, metavar="KIND", help="only for this kind of entity")
        add(
            "--limit",
            type=make_whole_parser(1, MAX_ID),
            metavar="N",
            help="at most N gaps (default: all)",
        )
        add(
            "--again",
            action="store_true",
            help="ask also for what was asked for in the last 24 hours",
        )
        add("--dry-run", action="store_true", help="print what would be asked, ask nobody")
        add("--json", action="store_true", dest="heal_json", help="print JSON")

    def handle(self, *_: Any, **options: Any) -> None:
        if options["command"] == "heal":
            from annals.management.actions import heal

            heal.run(self, **options)
        else:
            from history.management.actions.gaps import update_gaps

            update_gaps(self, as_json=options["json"])
