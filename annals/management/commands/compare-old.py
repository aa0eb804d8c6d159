"""`annals compare-old`: applications here and in the service that Annals replaces."""  # noqa: N999 - its name

from pathlib import Path

from django.core.management.base import CommandParser

from history.management.action import ActionCommand
from history.management.numbers import make_whole_parser


class Command(ActionCommand):
    help = (
        "Compare applications version by version with the service that Annals replaces "
        "(ANNALS_FALLBACK_URL); prints paths, never values; exit 0: nothing is missing here or "
        "differs, 1: something is, an application could not be compared, or no version is in both, "
        "2: it failed."
    )
    action = "annals.management.comparing.run"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--sample",
            type=make_whole_parser(1, 10_000_000),
            default=1000,
            help="number of applications, chosen at random (default %(default)s)",
        )
        parser.add_argument(
            "--seed", type=int, default=1, help="which ones: another number chooses others"
        )
        parser.add_argument(
            "--applications",
            type=Path,
            metavar="FILE",
            help="compare these instead: one id on each line; also those that are not here",
        )
        parser.add_argument("--reason", default="", help="why, kept in the access journal")
        parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON")
