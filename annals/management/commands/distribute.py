"""`annals distribute`: the tables of versions onto the nodes of a Citus cluster."""

from django.core.management.base import CommandParser

from history.management.action import ActionCommand
from history.management.numbers import make_whole_parser

MAX_SHARDS = 64_000  # of Citus


class Command(ActionCommand):
    help = (
        "Distribute the tables of versions over the nodes of a Citus cluster. Can be interrupted "
        "and repeated. Consumers must be stopped; start the web again afterwards."
    )
    action = "annals.management.actions.distribute.run"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--dry-run", action="store_true", help="print what would be done, change nothing"
        )
        parser.add_argument(
            "--shards",
            type=make_whole_parser(1, MAX_SHARDS),
            help="parts of each table, which later can only be moved as a whole (default: "
            "citus.shard_count, which is 32)",
        )
        parser.add_argument("--json", action="store_true", help="print JSON")
