"""`annals ledger`: prints the ledger and the places where it does not add up."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from history.management.numbers import make_whole_parser


class Command(BaseCommand):
    help = (
        "Print the messages read, stored, repeated, expired and quarantined of each topic "
        "partition; exit 1 if the sums do not add up, or the brokers deleted unread messages."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print JSON")
        parser.add_argument(
            "--offline",
            action="store_true",
            help="do not ask Kafka; show the lag and the forecast that the consumer recorded last",
        )

        commands = parser.add_subparsers(dest="command", metavar="COMMAND")
        acknowledge = commands.add_parser(
            "acknowledge",
            help="record that the lost messages of a topic are known; only later losses are "
            "reported",
        )
        acknowledge.add_argument("topic", metavar="TOPIC", help="the topic")
        acknowledge.add_argument(
            "--partition", type=make_whole_parser(0, 2**31 - 1), help="only this partition"
        )
        acknowledge.add_argument(
            "--why", required=True, help="the reason; it is kept with the losses"
        )
        retire = commands.add_parser(
            "retire", help="declare a topic finished: completeness no longer waits for it"
        )
        unretire = commands.add_parser("unretire", help="take `retire` back")
        for action in (retire, unretire):
            action.add_argument("topic", metavar="TOPIC", help="the topic")
        retire.add_argument("--why", required=True, help="the reason; it is shown")

    def handle(self, *_: Any, **options: Any) -> None:
        from ingest.management.actions.ledger import LedgerRun

        LedgerRun(self).handle(**options)
