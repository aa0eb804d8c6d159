"""`annals capacity`: disk space for the history, from real partitions or given figures."""

from django.core.management.base import CommandParser

from history.management.action import ActionCommand
from history.management.numbers import MAX_DAYS, make_number_parser, make_whole_parser


class Command(ActionCommand):
    help = "Compute the disk space of the history."
    action = "history.management.actions.capacity.run"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--rps",
            type=make_number_parser(0.001, 1e7),
            help="messages per second (default: measured)",
        )
        parser.add_argument(
            "--avg-bytes",
            type=make_number_parser(1, 1e9),
            default=1785.0,
            help="mean size of a message in bytes, used with --rps (default 1785)",
        )
        parser.add_argument(
            "--days",
            type=make_whole_parser(1, MAX_DAYS),
            help="retention in days (default: ANNALS_RETENTION_DAYS)",
        )
        parser.add_argument(
            "--pack-after-days",
            type=make_whole_parser(0, MAX_DAYS),
            help="days after which a day is packed, 0: never (default: ANNALS_PACK_AFTER_DAYS)",
        )
        parser.add_argument("--json", action="store_true", help="print JSON")
