"""`manage.py bench ingest|timeline|diff`: benchmarks, as ratios to a limit of the same run."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from importlib import import_module
from typing import Any

from django.core.management.base import BaseCommand, CommandError

LEAST_CATCH_UP = 200_000


class Command(BaseCommand):
    help = "Measure, beside a limit measured in the same run."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        benches = parser.add_subparsers(dest="bench", required=True, metavar="BENCH")
        ingest = benches.add_parser("ingest", help="consumer against bare COPY").add_argument
        ingest(
            "--messages",
            type=int,
            default=300_000,
            help="in the main runs; 0: only --catch-up (default %(default)s)",
        )
        ingest("--catch-up", type=int, default=0, metavar="N",
               help="also read a backlog of N messages, for example 2000000, from Apache Kafka "
               "(needs Java, Maven and 2.2 KB of disk a message)")  # fmt: skip
        ingest("--rounds", type=int, default=3, help="limit and consumer in turn, so many times")
        ingest("--json", action="store_true", dest="as_json", help="JSON on stdout")
        diff = benches.add_parser("diff", help="ours against DeepDiff and jsonpatch").add_argument
        diff("--real", default="", metavar="FILE",
             help="gzipped JSON lines of id, version and data")  # fmt: skip
        diff("--messages", type=int, default=20_000, help="simulated, to make pairs of")
        diff("--json", action="store_true", dest="as_json", help="JSON on stdout")

        pages = "pages as SQL, as calls, over HTTP"
        reading = benches.add_parser("timeline", help=pages).add_argument
        reading("--rows", type=int, default=5_000_000,
                help="versions of applications over 90 days (default %(default)s)")  # fmt: skip
        reading("--parallel-seconds", type=int, default=60,
                help="how long 16 clients read beside ingest; 0: not")  # fmt: skip
        reading("--json", action="store_true", dest="as_json", help="JSON on stdout")

    def handle(self, **options: Any) -> None:
        if 0 < options.get("catch_up", 0) < LEAST_CATCH_UP:
            raise CommandError(f"--catch-up: at least {LEAST_CATCH_UP}, or its tenths say nothing")
        bench = import_module(f"annals.bench.{options['bench']}")
        names = {
            "ingest": ("messages", "catch_up", "rounds", "as_json"),
            "timeline": ("rows", "parallel_seconds", "as_json"),
            "diff": ("real", "messages", "as_json"),
        }[options["bench"]]
        sys.exit(bench.run(**{name: options[name] for name in names}))
