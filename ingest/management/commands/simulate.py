"""`annals simulate`: realistic load on the live topics, and what it was like."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from django.core.management.base import BaseCommand

from history.late import late
from history.management.numbers import MOST_DAYS, number
from ingest.simulator.pace import LIVE_RPS

N = TypeVar("N", int, float)


class Command(BaseCommand):
    help = "Produce realistic applications to Kafka and print the distribution they had."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("--rps", type=_at_least(0.0), help="messages per second; 0 = as fast as possible "
            f"(default {LIVE_RPS:g}, with --days 0)")  # fmt: skip
        add("--seconds", type=_at_least(0.0), help="stop after N seconds")
        add(
            "--applications",
            type=_at_least(0),
            help="number of applications, each produced up to its last version",
        )
        add("--messages", type=_at_least(0), help="stop after N messages")
        add("--seed", type=int, help="the same seed and start give the same bytes "
            "(default: a different one each time)")  # fmt: skip
        add("--days", type=number(0, MOST_DAYS), default=0.0,
            help="spread updatedAt over the last N days (default 0: now)")  # fmt: skip
        add("--topics-partitions", type=_at_least(1), default=3,
            help="partitions of missing topics, which are created (default 3)")  # fmt: skip
        add("--json", action="store_true", help="a summary line on stdout, tables on stderr")
        add("--people-csv", type=Path, metavar="FILE",
            help="only write the people of the simulation, for `people import`")  # fmt: skip

    def handle(self, *_: Any, **options: Any) -> None:
        late("ingest.management.actions.simulate.run")(self, **options)


def _at_least(least: N) -> Callable[[str], N]:
    def number(text: str) -> N:
        try:
            value = type(least)(text)
        except ValueError:
            raise ArgumentTypeError(f"{text!r} is not a number") from None
        if not value >= least:
            raise ArgumentTypeError(f"{text} is less than {least:g}")
        return value

    return number
