"""`annals partitions list` and `plan`: the days that exist, and what `maintain` would do."""

import json
from collections.abc import Iterable, Iterator
from datetime import date
from itertools import groupby
from operator import itemgetter

from django.core.management.base import CommandError
from django.db import connection

from annals.access.journal import days as journal
from annals.management.partitions import nightly
from annals.management.partitions.call import PartitionsCall, format_sentence
from history.common import clock, schema
from history.common.text_tables import pluralize, print_table
from history.kinds.entities import BY_TABLE
from history.retention import catalog, partition_output
from history.retention.plan import PartitionPolicy, build_plans
from history.store.database import forms
from history.store.days.days import build_partition_name


def list_partitions(call: PartitionsCall) -> int:
    """Print the partitions that exist."""
    partitions = catalog.read_partitions(
        connection, [table.name for table in journal.list_day_tables()]
    )
    if call.options["json"]:
        objects = [partition_output.build_partition_object(partition) for partition in partitions]
        call.stdout.write(json.dumps(objects))
        return 0
    if not partitions and (problem := schema.explain_database()) is not None:
        raise CommandError(problem, returncode=2)  # the tables do not exist
    print_table(call.stdout, partition_output.build_partition_table(partitions))
    total = partition_output.format_size(sum(partition.bytes for partition in partitions))
    call.stdout.write(f"{pluralize(len(partitions), 'partition')}, {total}.")
    return 0


def show_plan(call: PartitionsCall) -> int:
    """Print what `maintain` would create, drop, keep and pack, and why."""
    policy = PartitionPolicy.at(
        clock.now(), None if call.options["force"] else nightly.FIND_HELD_DAYS
    )
    day_tables = journal.list_day_tables()
    partitions = catalog.read_partitions(connection, [table.name for table in day_tables])
    plans = build_plans(policy, day_tables, partitions)
    lines = [line for plan in plans for line in plan.list_lines()]
    counts = {
        action: sum(line.action == action for line in lines)
        for action in ("create", "drop", "keep")
    }
    version_partitions = [partition for partition in partitions if partition.table in BY_TABLE]
    days_to_pack = nightly.find_days_to_pack(version_partitions, policy.today)
    window = policy.window
    if call.options["json"]:
        answer = {
            "window": {"oldest": str(window.oldest), "newest": str(window.newest)},
            **counts,
            "partitions": [partition_output.build_line_object(line) for line in lines],
            "pack": [build_partition_name(table, day) for table, day in days_to_pack],
        }
        call.stdout.write(json.dumps(answer))
        return 0
    print_table(call.stdout, partition_output.build_plan_table(lines, call.options["each"]))
    freed = partition_output.format_size(
        sum(line.partition.bytes for line in lines if line.action == "drop")
    )
    call.stdout.write(
        f"Window {window.oldest} to {window.newest} (UTC): "
        f"{counts['create']} to create, {counts['drop']} to drop ({freed}), "
        f"{counts['keep']} to keep."
    )
    for sentence in _describe_days_to_pack(days_to_pack):
        call.stdout.write(sentence)
    if days_to_pack:
        reason = forms.explain_wait(forms.find_unready(connection.connection))
        if reason:
            call.stdout.write(format_sentence(reason))
    try:
        clock.check_clocks(connection.connection)
    except clock.WrongClockError as error:
        call.stderr.write(f"`maintain` would do nothing: {error}.")
    return 0


def _describe_days_to_pack(days: Iterable[tuple[str, date]]) -> Iterator[str]:
    """Yield a line for each table that has days to pack."""
    for table, table_days in groupby(sorted(days), itemgetter(0)):
        dates = [day for _, day in table_days]
        yield f"{table}: {pluralize(len(dates), 'day')} to pack, {dates[0]} to {dates[-1]}"
