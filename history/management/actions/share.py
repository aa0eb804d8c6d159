"""What `annals share` does."""

import json
import sys
from datetime import date, timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from history.base import clock
from history.base.plain_text import one_line
from history.base.table import Table, counted, print_table
from history.capacity import client_shares
from history.capacity.client_shares import Amount, Brought, Shares
from history.partitions.show import size

COLUMNS = ("service", "kind", "versions", "share", "bytes", "changed nothing", "technical only")


def run(command: BaseCommand, **options: Any) -> None:
    """Count the days and print the report. options: as the command declares them. Exits with 1 if
    no finished day is counted."""
    today, retention = clock.now().date(), settings.ANNALS.retention_days
    if not options["stored"]:
        client_shares.record(
            today, retention, options["rows"], options["again"], partial(_progress, command)
        )
    found = client_shares.recorded(today - timedelta(days=options["days"] or retention))
    if found is None:
        raise CommandError("no finished day is counted yet: run `share` without --stored.")
    if options["json"]:
        command.stdout.write(json.dumps(as_json(found, retention)))
    else:
        _print(command, found, retention)


def _progress(command: BaseCommand, table: str, day: date) -> None:
    if sys.stderr.isatty():
        command.stderr.write(f"{table} {day}")


def _print(command: BaseCommand, found: Shares, retention: int) -> None:
    table = Table(*COLUMNS, right=COLUMNS[2:])
    total = found.total
    for client, brought in found.by_client():
        name = one_line(client) or "(others)"
        table.add(name, "all", *_cells(brought, total))
        for line in found.lines:
            if line.client_id == client:
                table.add(name, line.entity.name, *_cells(line.brought, total))
    table.add("all", "", *_cells(total, total))
    print_table(command.stdout, table)
    command.stdout.write(
        f"Versions of {counted(found.days, 'day')}, {found.since} to {found.until}. What changed "
        f"nothing or technical fields is estimated from {total.compared:,} of them."
    )
    for what, size_ in zip(
        (
            "A filter upstream of versions that change nothing",
            "A label upstream of technical versions, which are then left out too",
        ),
        found.saved(retention),
        strict=True,
    ):
        days = counted(retention, "day")
        command.stdout.write(f"{what}: saves {size(int(size_))} of {days}.")


def as_json(found: Shares, retention: int) -> dict[str, Any]:
    """The report; see docs/capacity.md."""
    total = found.total
    nothing, both = found.saved(retention)
    return {
        "since": str(found.since),
        "until": str(found.until),
        "days": found.days,
        "retentionDays": retention,
        "compared": total.compared,
        "services": [
            {
                "clientId": line.client_id or None,
                "entity": line.entity.name,
                **_object(line.brought, total),
            }
            for line in found.lines
        ],
        "clients": [
            {"clientId": client or None, **_object(brought, total)}
            for client, brought in found.by_client()
        ],
        "total": _object(total, total),
        "savedBytes": {"nothing": nothing, "nothingAndTechnical": both},
    }


def _object(brought: Brought, total: Brought) -> dict[str, Any]:
    return {
        **_amount(brought.all),
        "share": brought.all.versions / (total.all.versions or 1.0),
        "nothing": _amount(brought.nothing),
        "technical": _amount(brought.technical),
        "compared": brought.compared,
    }


def _amount(amount: Amount) -> dict[str, float]:
    return {"versions": amount.versions, "bytes": amount.bytes}


def _cells(brought: Brought, total: Brought) -> list[str]:
    versions = brought.all.versions
    return [
        f"{versions:,.0f}",
        percent(versions, total.all.versions),
        size(int(brought.all.bytes)),
        percent(brought.nothing.versions, versions),
        percent(brought.technical.versions, versions),
    ]


def percent(part: float, whole: float) -> str:
    """`12.3%`"""
    return f"{part / whole:.1%}" if whole else ""
