"""`annals capacity`: disk space for the history, from real partitions or given figures."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from history.late import late
from history.management.numbers import MOST_DAYS, number, whole
from history.management.sizes import in_bytes

MOST_VERSIONS = 2**31  # of one document, by the contract


class Command(BaseCommand):
    help = "Compute the disk space of the history, when the disk is full, and other retentions."
    requires_system_checks = []

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
            "--growth",
            type=number(-0.99, 100),
            default=0.25,
            help="growth of the load per year; 0.25 means 25%% (default 0.25)",
        )
        parser.add_argument(
            "--disk",
            type=in_bytes,
            help="size of the disk, with --nodes of each worker; for example 2T (default: the disk"
            " of a server on this machine, with --nodes none)",
        )
        parser.add_argument(
            "--checkpoint",
            type=number(0.5, 1440),
            help="checkpoint_timeout in minutes (default: the setting of the server; with --rps 5)",
        )
        parser.add_argument(
            "--wal-compression", action="store_true", help="assume that wal_compression is on"
        )
        self._add_cluster(parser)
        parser.add_argument("--json", action="store_true", help="print JSON")

    def _add_cluster(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--nodes",
            type=whole(1, 10_000),
            help="plan a cluster with this many workers, which share the tables (docs/citus.md)",
        )
        parser.add_argument(
            "--shards",
            type=whole(2, 64_000),
            help="parts of each table, with --nodes; more than workers (default 32)",
        )
        parser.add_argument(
            "--move-rate",
            type=in_bytes,
            help="bytes a second with which a shard moves to another worker, with --nodes"
            " (default 50M)",
        )
        parser.add_argument(
            "--large",
            type=whole(0, 1_000_000_000),
            help="how many applications have very many versions within the retention, with --nodes"
            " (default: one in 5 million versions)",
        )
        parser.add_argument(
            "--large-versions",
            type=whole(1, MOST_VERSIONS),
            help="how many versions each of those has (default 10000)",
        )

    def handle(self, *_: Any, **options: Any) -> None:
        late("history.management.actions.capacity.run")(self, **options)
