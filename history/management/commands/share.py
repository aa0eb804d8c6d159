"""`annals share`: how much each client service brings, and how much of it changes nothing."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from history.late import late
from history.management import numbers

BLOCKS = 100
MOST_BLOCKS = 1_000_000


class Command(BaseCommand):
    help = (
        "Sample the finished days that are not sampled yet, and print how many versions and bytes "
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
            "--blocks",
            type=numbers.whole(1, MOST_BLOCKS),
            default=BLOCKS,
            help="blocks of 8 KB to read from each day of each table (default %(default)s)",
        )
        add(
            "--again",
            action="store_true",
            help="sample all days again, for example after fields became technical",
        )
        add("--stored", action="store_true", help="only print what was sampled before")
        add("--json", action="store_true", help="print JSON")

    def handle(self, *_: Any, **options: Any) -> None:
        late("history.management.actions.share.run")(self, **options)
