"""`annals share`: how much each client service brings, and how much of it changes nothing."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from history.management import numbers

ROWS = 1000
MOST_ROWS = 1_000_000


class Command(BaseCommand):
    help = (
        "Count the finished days that are not counted yet, and print how many versions and bytes "
        "each client service brings, how many of them changed nothing or technical fields only, "
        "and what a filter upstream would save."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add(
            "--days",
            type=numbers.whole(1, numbers.MOST_DAYS),
            help="only the last N days (default: all of retention)",
        )
        add(
            "--rows",
            type=numbers.whole(1, MOST_ROWS),
            default=ROWS,
            help="about how many versions of each day and table to compare with the one before "
            "(default %(default)s)",
        )
        add(
            "--again",
            action="store_true",
            help="count all days again, for example after fields became technical",
        )
        add("--stored", action="store_true", help="only print what was counted before")
        add("--json", action="store_true", help="print JSON")

    def handle(self, *_: Any, **options: Any) -> None:
        from history.management.actions.share import run

        run(self, **options)
