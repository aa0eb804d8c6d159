"""`annals export`: whole days of one kind of entity, for a data warehouse."""

from argparse import ArgumentTypeError
from pathlib import Path

from django.core.management.base import CommandParser

from history.kinds.entities import BY_NAME
from history.management.action import ActionCommand
from history.management.numbers import parse_day


class Command(ActionCommand):
    help = (
        "Export the versions of one kind of entity, by whole days, from the table and the archive, "
        "to files or standard output; exit 0: all days were exported, 1: some do not exist any "
        "more, 2: it failed."
    )
    action = "history.management.actions.export.run"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--entity", choices=BY_NAME, required=True, help="kind of entity to export"
        )
        parser.add_argument(
            "--from",
            type=parse_day,
            help="first day, YYYY-MM-DD, UTC (default: oldest day in the table or the archive)",
        )
        parser.add_argument(
            "--to",
            type=parse_day,
            help="day after the last one, YYYY-MM-DD, UTC (default: today, which is not complete)",
        )
        parser.add_argument(
            "--format", choices=("jsonl", "parquet"), default="jsonl", help="format (default jsonl)"
        )
        parser.add_argument(
            "--output",
            type=Path,
            help="directory for one file per day; an existing file is kept if its day still has as "
            "many rows, so that an interrupted export can be continued (default: one stream to "
            "standard output)",
        )
        parser.add_argument("--reason", default="", help="why, kept in the access journal")
        parser.add_argument(
            "--unmasked",
            type=_parse_reason,
            metavar="REASON",
            help="export sensitive fields as they are; log and access journal keep the reason "
            "(default: masked)",
        )
        parser.add_argument(
            "--json",
            action="store_true",
            help="print the sums as JSON: with --output to standard output, else to standard "
            "error as its last line",
        )


def _parse_reason(text: str) -> str:
    """Read a reason of at least one word.

    Raises:
        ArgumentTypeError: The reason is empty.
    """
    if not text.strip():
        raise ArgumentTypeError("say why: the reason must not be empty")
    return text.strip()
