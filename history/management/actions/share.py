"""What `annals share` does."""

from __future__ import annotations

import json
import sys
from datetime import date, timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from history import clock
from history.capacity import services
from history.capacity.estimate import Amount, Brought
from history.capacity.services import Stored
from history.capacity.upstream import Saved, saved
from history.counted import counted
from history.partitions.show import size
from history.plain_text import one_line
from history.table import Table, print_table

COLUMNS = ("service", "kind", "versions", "share", "bytes", "changed nothing", "technical only")


def run(command: BaseCommand, **options: Any) -> None:
    """Sample the days and print the report. options: as the command declares them. Exits with 1 if
    no finished day is sampled."""
    today, retention = clock.now().date(), settings.ANNALS.retention_days
    if not options["stored"]:
        services.record(
            today, retention, options["blocks"], options["again"], partial(_progress, command)
        )
    since = today - timedelta(days=options["days"] or retention)
    found = services.stored(since)
    if found is None:
        raise CommandError("no finished day is sampled yet: run `share` without --stored.")
    if options["json"]:
        command.stdout.write(json.dumps(as_json(found, retention)))
    else:
        _print(command, found, retention)


def _progress(command: BaseCommand, table: str, day: date) -> None:
    if sys.stderr.isatty():
        command.stderr.write(f"{table} {day}")


def _print(command: BaseCommand, found: Stored, retention: int) -> None:
    table = Table(*COLUMNS, right=COLUMNS[2:], head=2)
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
        f"From {counted(total.sampled, 'version')} of {counted(found.days, 'day')}, "
        f"{found.since} to {found.until}. ± is the error of the sample: 95% of such samples "
        "are nearer."
    )
    for what, each in saved(found, retention).items():
        command.stdout.write(f"{what}: saves {_saved(each)} of {counted(retention, 'day')}.")


def as_json(found: Stored, retention: int) -> dict[str, Any]:
    """The report; see docs/capacity.md."""
    total = found.total
    return {
        "since": str(found.since),
        "until": str(found.until),
        "days": found.days,
        "retentionDays": retention,
        "sampled": total.sampled,
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
        "saved": {
            each.name: {"bytes": each.bytes, "bytesError": each.error}
            for each in saved(found, retention).values()
        },
    }


def _object(brought: Brought, total: Brought) -> dict[str, Any]:
    share = total.all.versions or 1.0
    return {
        **_amount(brought.all),
        "share": brought.all.versions / share,
        "shareError": brought.all.versions_error / share,
        "nothing": _amount(brought.nothing),
        "technical": _amount(brought.technical),
        "sampled": brought.sampled,
    }


def _amount(amount: Amount) -> dict[str, float]:
    return {
        "versions": amount.versions,
        "versionsError": amount.versions_error,
        "bytes": amount.bytes,
        "bytesError": amount.bytes_error,
    }


def _cells(brought: Brought, total: Brought) -> list[str]:
    versions = brought.all.versions
    return [
        f"{versions:,.0f}",
        percent(versions, brought.all.versions_error, total.all.versions),
        size(int(brought.all.bytes)),
        percent(brought.nothing.versions, brought.nothing.versions_error, versions),
        percent(brought.technical.versions, brought.technical.versions_error, versions),
    ]


def percent(part: float, error: float, whole: float) -> str:
    """`12.3% ± 0.4`"""
    return f"{part / whole:.1%} ± {error / whole * 100:.1f}" if whole else ""


def _saved(each: Saved) -> str:
    return f"{size(int(each.bytes))} ± {size(int(each.error))}"
