"""`annals distribute`: distributes the tables of versions over the nodes of a Citus cluster."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection

from history.common.text_tables import build_table, print_table
from history.kinds.entities import ENTITIES
from history.management.numbers import make_whole_parser

if TYPE_CHECKING:
    from annals.operations.distribution_steps import DistributionPlan
    from history.store.days.days import Connection


MAX_SHARDS = 64_000  # the limit of Citus
NEXT_STEPS = (
    "Run `annals grants --apply` and `annals search index`. Restart the web and the consumers: "
    "they check only at their start whether the tables are distributed."
)


class Command(BaseCommand):
    help = (
        "Distribute the tables of versions over the nodes of a Citus cluster. Can be interrupted "
        "and repeated. Consumers must be stopped; start the web again afterwards."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--dry-run", action="store_true", help="print what would be done, change nothing"
        )
        parser.add_argument(
            "--shards",
            type=make_whole_parser(1, MAX_SHARDS),
            help="number of parts into which each table is divided; it cannot be changed later "
            "(default: citus.shard_count, which is 32)",
        )
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *_: Any, **options: Any) -> None:
        """Distribute the tables, or print what is left to do."""
        import psycopg

        from annals.operations import distribution_steps
        from annals.operations.distribution_steps import build_plan
        from history.common import schema
        from history.common.error_text import describe
        from history.retention import catalog
        from history.retention.run_lock import NoRunLockError, hold_run_lock
        from history.store.distribution import DISTRIBUTED_BY, refuse_worker
        from ingest.store import rights

        began = time.monotonic()
        connection.ensure_connection()
        refuse_worker(connection.connection)
        if (mismatch := schema.explain_database()) is not None:
            raise CommandError(mismatch)
        try:
            with hold_run_lock():
                pg_connection = connection.connection
                partitions = catalog.read_partitions(
                    connection, [entity.table for entity in ENTITIES]
                )
                distribution_steps.check_cluster(pg_connection, partitions)
                distribution_plan = build_plan(
                    pg_connection, partitions, rights.list_tables() - DISTRIBUTED_BY.keys()
                )
                _refuse_shards(distribution_plan, options["shards"])
                distribution_steps.check_connections(
                    pg_connection,
                    distribution_plan.shards
                    or options["shards"]
                    or _get_default_shards(pg_connection),
                )
                if not options["dry_run"]:
                    distribution_steps.refuse_consumers(pg_connection)
                    quiet = options["json"]
                    log_step = (lambda _: None) if quiet else self.stdout.write
                    distribution_steps.run_steps(
                        pg_connection, distribution_plan, partitions, options["shards"], log_step
                    )
        except (NoRunLockError, distribution_steps.NotDistributableError) as error:
            raise CommandError(f"Nothing was done: {error}.") from error
        except psycopg.Error as error:
            raise CommandError(
                f"{describe(error)}. Completed steps stay done: run `annals distribute` again.",
                returncode=2,
            ) from error
        if options["json"]:
            summary = _to_summary(distribution_plan, options, time.monotonic() - began)
            self.stdout.write(json.dumps(summary))
        elif options["dry_run"]:
            _print_plan(self, distribution_plan)
        else:
            result = (
                "Nothing was left to do."
                if distribution_plan.done
                else "The installation is distributed."
            )
            self.stdout.write(f"{result} {NEXT_STEPS}")


def _refuse_shards(plan: DistributionPlan, requested: int | None) -> None:
    from annals.operations import distribution_steps

    if requested is not None and plan.shards not in (0, requested):
        raise distribution_steps.NotDistributableError(
            f"the tables have {plan.shards} shards already, which --shards cannot change"
        )


def _get_default_shards(connection: Connection) -> int:
    row = connection.execute("SELECT current_setting('citus.shard_count')::int").fetchone()
    return row[0] if row else 0


def _print_plan(command: BaseCommand, plan: DistributionPlan) -> None:
    from history.store.distribution import DISTRIBUTED_BY

    table = build_table(
        "table", "action", "days", "~rows", "bytes", right=("days", "~rows", "bytes")
    )
    for name in (*plan.partitioned_tables, *plan.distributed_lookup_tables):
        table.add_row(name, f"distribute by {DISTRIBUTED_BY[name]}", *_format_sizes(plan, name))
    for name in plan.shared_tables:
        table.add_row(name, "reach from each node", "", "", "")
    for name in dict.fromkeys(day.table for day in plan.days):
        if name not in plan.partitioned_tables:
            table.add_row(name, "attach days again", *_format_sizes(plan, name))
    print_table(command.stdout, table)
    command.stdout.write("Nothing is left to do." if plan.done else "Nothing was changed.")


def _format_sizes(plan: DistributionPlan, table: str) -> tuple[str, str, str]:
    from history.retention.partition_output import format_size

    days = [day for day in plan.days if day.table == table]
    if not days:
        return "", "", ""
    rows, bytes = sum(day.rows for day in days), sum(day.bytes for day in days)
    return str(len(days)), f"{rows:,}", format_size(bytes)


def _to_summary(plan: DistributionPlan, options: dict[str, Any], seconds: float) -> dict[str, Any]:
    return {
        "shards": plan.shards or options["shards"],
        "distributed": [*plan.partitioned_tables, *plan.distributed_lookup_tables],
        "shared": list(plan.shared_tables),
        "days": [day.name for day in plan.days],
        "rows": sum(day.rows for day in plan.days),
        "bytes": sum(day.bytes for day in plan.days),
        "done": not options["dry_run"] or plan.done,
        "seconds": round(seconds, 1),
    }
