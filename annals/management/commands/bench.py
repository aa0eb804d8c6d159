"""`annals bench`: benchmarks, next to a reference of the same run."""

from __future__ import annotations

import signal
import sys
from argparse import ArgumentParser
from importlib import import_module
from typing import Any

from django.core.management.base import BaseCommand, CommandError

MIN_CATCH_UP = 200_000


class Command(BaseCommand):
    help = "Run a benchmark next to a reference that is measured in the same run."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        benches = parser.add_subparsers(dest="bench", required=True, metavar="BENCH")
        for add in (
            _add_ingest,
            _add_transactions,
            _add_diff,
            _add_timeline,
            _add_reading,
            _add_journal,
            _add_storage,
            _add_loss,
            _add_gaps,
            _add_start,
        ):
            add(benches)

    def handle(self, **options: Any) -> None:
        if 0 < options.get("catch_up", 0) < MIN_CATCH_UP:
            raise CommandError(f"--catch-up must be 0, or {MIN_CATCH_UP} or more")
        from history.kinds import given, shipped

        if not set(shipped()) <= set(given()):
            raise CommandError(
                "The benchmarks need the kinds that come with Annals: unset "
                "ANNALS_ENTITIES_FILE for them."
            )
        # So that SIGTERM stops the servers too, and removes the database.
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        bench = import_module(f"annals.bench.{options['bench']}")
        names = {
            "ingest": ("messages", "catch_up", "rounds", "as_json"),
            "transactions": ("messages", "rounds", "as_json"),
            "timeline": ("rows", "parallel_seconds", "as_json"),
            "reading": ("rows", "days", "as_json"),
            "diff": ("real", "messages", "as_json"),
            "journal": ("requests", "as_json"),
            "storage": ("messages", "rounds", "as_json"),
            "loss": ("as_json",),
            "gaps": ("rows", "as_json"),
            "start": ("rounds", "apache", "as_json"),
        }[options["bench"]]
        sys.exit(bench.run(**{name: options[name] for name in names}))


def _add_ingest(benches: Any) -> None:
    add = benches.add_parser(
        "ingest", help="measure the consumer against bare COPY of the same rows"
    ).add_argument
    add(
        "--messages",
        type=int,
        default=300_000,
        help="messages in the main runs; 0 = run only --catch-up (default %(default)s)",
    )
    add(
        "--catch-up",
        type=int,
        default=0,
        metavar="N",
        help="also read a backlog of N messages from Apache Kafka, for example 2000000; 0 = "
        "no backlog (default); needs Java, Maven and 2.2 KB of disk per message",
    )
    add(
        "--rounds",
        type=int,
        default=3,
        help="measurements of COPY and consumer, in turn (default %(default)s)",
    )
    add("--json", action="store_true", dest="as_json", help="print JSON")


def _add_transactions(benches: Any) -> None:
    add = benches.add_parser(
        "transactions",
        help="measure a topic with one transaction for each message, and a compacted one, against "
        "a plain topic; needs Java and Maven",
    ).add_argument
    add(
        "--messages",
        type=int,
        default=10_000,
        help="messages in each topic (default %(default)s)",
    )
    add(
        "--rounds",
        type=int,
        default=3,
        help="measurements of each, in turn with the plain topic (default %(default)s)",
    )
    add("--json", action="store_true", dest="as_json", help="print JSON")


def _add_diff(benches: Any) -> None:
    add = benches.add_parser(
        "diff", help="measure the comparison of snapshots against DeepDiff and jsonpatch"
    ).add_argument
    add(
        "--real",
        default="",
        metavar="FILE",
        help="gzipped JSON lines with id, version and data: real versions to compare",
    )
    add(
        "--messages",
        type=int,
        default=20_000,
        help="simulated messages whose versions are compared (default %(default)s)",
    )
    add("--json", action="store_true", dest="as_json", help="print JSON")


def _add_timeline(benches: Any) -> None:
    add = benches.add_parser(
        "timeline", help="measure timeline pages as SQL, as Python calls and over HTTP"
    ).add_argument
    add(
        "--rows",
        type=int,
        default=5_000_000,
        help="versions of applications over 90 days (default %(default)s)",
    )
    add(
        "--parallel-seconds",
        type=int,
        default=60,
        help="seconds for which 16 clients read during ingest; 0 = leave it out "
        "(default %(default)s)",
    )
    add("--json", action="store_true", dest="as_json", help="print JSON")


def _add_reading(benches: Any) -> None:
    add = benches.add_parser(
        "reading",
        help="measure pages of the same rows in plain tables and in distributed ones; needs the "
        "coordinator of a Citus cluster",
    ).add_argument
    add(
        "--rows",
        type=int,
        default=50_000,
        help="versions of applications, besides 16,000 of applications with many "
        "(default %(default)s)",
    )
    add("--days", type=int, default=92, help="partitions of each table (default %(default)s)")
    add("--json", action="store_true", dest="as_json", help="print JSON")


def _add_journal(benches: Any) -> None:
    add = benches.add_parser(
        "journal", help="measure what the access journal costs a request"
    ).add_argument
    add(
        "--requests",
        type=int,
        default=1000,
        help="requests of each kind (default %(default)s)",
    )
    add("--json", action="store_true", dest="as_json", help="print JSON")


def _add_storage(benches: Any) -> None:
    add = benches.add_parser(
        "storage", help="measure COPY, bytes and WAL with each compression of documents"
    ).add_argument
    add(
        "--messages",
        type=int,
        default=100_000,
        help="rows of each measurement (default %(default)s)",
    )
    add(
        "--rounds",
        type=int,
        default=3,
        help="measurements of each compression, in turn (default %(default)s)",
    )
    add("--json", action="store_true", dest="as_json", help="print JSON")


def _add_loss(benches: Any) -> None:
    add = benches.add_parser(
        "loss",
        help="compare the forecast of losses with what Apache Kafka deletes; takes some three "
        "minutes, needs Java and Maven; exit 1 if a forecast is too late by more than a fifth, "
        "or too many are too early by that",
    ).add_argument
    add("--json", action="store_true", dest="as_json", help="print JSON")


def _add_gaps(benches: Any) -> None:
    add = benches.add_parser(
        "gaps", help="measure time and memory of `annals gaps`: all days, none, late rows"
    ).add_argument
    add(
        "--rows",
        type=int,
        default=5_000_000,
        help="versions over 88 days (default %(default)s)",
    )
    add("--json", action="store_true", dest="as_json", help="print JSON")


def _add_start(benches: Any) -> None:
    add = benches.add_parser(
        "start", help="measure how long commands, the web and the consumer take to start"
    ).add_argument
    add(
        "--rounds",
        type=int,
        default=5,
        help="starts of each process (default %(default)s)",
    )
    add(
        "--apache",
        action="store_true",
        help="the consumer joins its group at Apache Kafka; needs Java and Maven",
    )
    add("--json", action="store_true", dest="as_json", help="print JSON")
