"""Formats partitions and plans: as text tables for people, and as plain objects for JSON."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any

from history.common.text_tables import build_table, pluralize
from history.retention.catalog import Partition
from history.retention.plan import PlanLine

if TYPE_CHECKING:
    from rich.table import Table

NUMBERS = ("~rows", "bytes")


def format_size(count: int) -> str:
    """Format a number of bytes for people: `1.5 GiB`."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def build_partition_table(partitions: Iterable[Partition]) -> "Table":
    """Return a printable text table that has one line for each partition."""
    names = ("partition", "from (UTC)", "to (UTC)", "~rows", "bytes", "state", "ours")
    table = build_table(*names, right=NUMBERS)
    for partition in partitions:
        table.add_row(
            partition.name,
            _format_moment(partition.start),
            _format_moment(partition.end),
            f"{partition.rows:,}",
            format_size(partition.bytes),
            partition.state.value,
            "yes" if partition.day else "no",
        )
    return table


def build_plan_table(lines: Iterable[PlanLine], unmerged: bool = False) -> "Table":
    """Return a printable text table that has the lines of a plan.

    Consecutive lines with the same table, action and reason are merged into one line.

    Args:
        unmerged: True: do not merge lines. The table then has a line for each partition.
    """
    names = ("table", "action", "partitions", "from (UTC)", "to (UTC)", "~rows", "bytes", "why")
    table = build_table(*names, right=NUMBERS)
    for count, line in [(1, line) for line in lines] if unmerged else _merge_lines(lines):
        partition = line.partition
        table.add_row(
            partition.table,
            line.action,
            partition.name if count == 1 else pluralize(count, "day"),
            _format_moment(partition.start),
            _format_moment(partition.end),
            f"{partition.rows:,}",
            format_size(partition.bytes),
            line.reason,
        )
    return table


def build_partition_object(partition: Partition) -> dict[str, Any]:
    """Return a partition as JSON values. Moments are ISO 8601 in UTC; `rows` is an estimate."""
    day = partition.day.isoformat() if partition.day else None
    return {
        **_build_object(partition),
        "day": day,
        "state": partition.state.value,
        "marked": partition.marked,
    }


def build_line_object(line: PlanLine) -> dict[str, Any]:
    """Return what `partitions maintain` would do with one partition, as JSON values."""
    return {"action": line.action, **_build_object(line.partition), "reason": line.reason}


def _build_object(partition: Partition) -> dict[str, Any]:
    return {
        "table": partition.table,
        "name": partition.name,
        "from": partition.start.isoformat() if partition.start else None,
        "to": partition.end.isoformat() if partition.end else None,
        "rows": partition.rows,
        "bytes": partition.bytes,
    }


def _merge_lines(lines: Iterable[PlanLine]) -> Iterator[tuple[int, PlanLine]]:
    """Merge consecutive lines with the same table, action and reason.

    Yields:
        How many lines were merged, and the merged line.
    """
    for _, group in groupby(lines, lambda line: (line.partition.table, line.action, line.reason)):
        merged_lines = list(group)
        partitions = [line.partition for line in merged_lines]
        rows, bytes = (
            sum(partition.rows for partition in partitions),
            sum(partition.bytes for partition in partitions),
        )
        whole_partition = replace(partitions[0], end=partitions[-1].end, rows=rows, bytes=bytes)
        yield len(merged_lines), merged_lines[0]._replace(partition=whole_partition)


def _format_moment(moment: datetime | None) -> str:
    """Format a moment as date and time, or only as the date if it is midnight."""
    if moment is None:
        return "-"
    moment = moment.astimezone(UTC)
    midnight = (moment.hour, moment.minute, moment.second, moment.microsecond) == (0, 0, 0, 0)
    return f"{moment:%Y-%m-%d}" if midnight else f"{moment:%Y-%m-%d %H:%M:%S}"
