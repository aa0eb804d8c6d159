"""`annals capacity`: disk space for the history, from real partitions or given figures."""

from django.core.management.base import CommandParser

from history.management.action import ActionCommand
from history.management.numbers import MOST_DAYS, number, whole


class Command(ActionCommand):
    help = "Compute the disk space of the history."
    action = "history.management.actions.capacity.run"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--rps", type=number(0.001, 1e7), help="messages per second (default: measured)"
        )
        parser.add_argument(
            "--avg-bytes",
            type=number(1, 1e9),
            default=1785.0,
            help="mean size of a message in bytes, used with --rps (default 1785)",
        )
        parser.add_argument(
            "--days",
            type=whole(1, MOST_DAYS),
            help="retention in days (default: ANNALS_RETENTION_DAYS)",
        )
        parser.add_argument(
            "--pack-after-days",
            type=whole(0, MOST_DAYS),
            help="days after which a day is packed, 0: never (default: ANNALS_PACK_AFTER_DAYS)",
        )
        parser.add_argument("--json", action="store_true", help="print JSON")
