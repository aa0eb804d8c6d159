"""What `annals distribute` does."""

import json
import time
from typing import Any

import psycopg
from django.core.management.base import BaseCommand, CommandError
from django.db import connection

from history import schema
from history.base.error_text import describe
from history.base.table import columns, print_table
from history.daily.days import Connection
from history.distributing import steps
from history.distributing.steps import Plan, plan
from history.distribution import DISTRIBUTED_BY
from history.entities import ENTITIES
from history.partitions import catalog
from history.partitions.exclusive import NoRunLockError, run_lock
from history.partitions.show import size
from ingest import rights

AFTERWARDS = (
    "Run `annals grants --apply`. Start the web and the consumers again: they look only once "
    "whether the tables are distributed."
)


def run(command: BaseCommand, **options: Any) -> None:
    """Print what is left to do, or do it. options: the command's. Raises CommandError."""
    began = time.monotonic()
    if (why := schema.of_database()) is not None:
        raise CommandError(why)
    try:
        with run_lock():
            plain = connection.connection
            partitions = catalog.read(connection, [entity.table for entity in ENTITIES])
            steps.check(plain, partitions)
            left = plan(plain, partitions, rights.tables() - DISTRIBUTED_BY.keys())
            _refuse_shards(left, options["shards"])
            steps.check_connections(plain, left.shards or options["shards"] or _default(plain))
            if not options["dry_run"]:
                steps.refuse_consumers(plain)
                quiet = options["json"]
                say = (lambda _: None) if quiet else command.stdout.write
                steps.run(plain, left, partitions, options["shards"], say)
    except (NoRunLockError, steps.NotDistributableError) as error:
        raise CommandError(f"Nothing done: {error}.") from error
    except psycopg.Error as error:
        raise CommandError(
            f"{describe(error)}. What was done stays done: run `annals distribute` again.",
            returncode=2,
        ) from error
    if options["json"]:
        found = _as_object(left, options, time.monotonic() - began)
        command.stdout.write(json.dumps(found))
    elif options["dry_run"]:
        _print(command, left)
    else:
        what = "Nothing was left to do." if left.done else "The installation is distributed."
        command.stdout.write(f"{what} {AFTERWARDS}")


def _refuse_shards(left: Plan, asked: int | None) -> None:
    if asked is not None and left.shards not in (0, asked):
        raise steps.NotDistributableError(
            f"the tables have {left.shards} shards already, which --shards cannot change"
        )


def _default(connection: Connection) -> int:
    row = connection.execute("SELECT current_setting('citus.shard_count')::int").fetchone()
    return row[0] if row else 0


def _print(command: BaseCommand, left: Plan) -> None:
    table = columns("table", "action", "days", "~rows", "bytes", right=("days", "~rows", "bytes"))
    for name in (*left.parents, *left.lookups):
        table.add_row(name, f"distribute by {DISTRIBUTED_BY[name]}", *_of(left, name))
    for name in left.locals:
        table.add_row(name, "reach from each node", "", "", "")
    for name in dict.fromkeys(each.table for each in left.days):
        if name not in left.parents:
            table.add_row(name, "attach days again", *_of(left, name))
    print_table(command.stdout, table)
    command.stdout.write("Nothing is left to do." if left.done else "Nothing was changed.")


def _of(left: Plan, table: str) -> tuple[str, str, str]:
    days = [each for each in left.days if each.table == table]
    if not days:
        return "", "", ""
    rows, bytes = sum(each.rows for each in days), sum(each.bytes for each in days)
    return str(len(days)), f"{rows:,}", size(bytes)


def _as_object(left: Plan, options: dict[str, Any], seconds: float) -> dict[str, Any]:
    return {
        "shards": left.shards or options["shards"],
        "distributed": [*left.parents, *left.lookups],
        "shared": list(left.locals),
        "days": [each.name for each in left.days],
        "rows": sum(each.rows for each in left.days),
        "bytes": sum(each.bytes for each in left.days),
        "done": not options["dry_run"] or left.done,
        "seconds": round(seconds, 1),
    }
