"""`annals partitions verify`: sealed days in the tables, or the files of the archive."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import date, datetime
from typing import Any

from django.core.management.base import OutputWrapper
from django.db import Error, connection
from django.db.models import Min, QuerySet, Sum

from history.archive.scrubbing import scrub, waiting
from history.archive.store import ArchiveError, Store
from history.base import clock
from history.base.error_text import describe
from history.base.table import counted
from history.entities import Entity
from history.kinds.kind import DayRows
from history.management.progress import progress
from history.models import ArchivedDay, DaySeal
from history.seals import verification
from history.seals.seal import NotSealable
from history.seals.verification import chain_fault, newest_seal, verify


def verify_tables(
    tables: Sequence[DayRows], options: dict[str, Any], out: OutputWrapper, err: OutputWrapper
) -> int:
    """Check the sealed days and the chain of each table; returns the exit code."""
    connection.ensure_connection()
    _refuse_unsealed(tables, options["day"])
    code, objects = 0, []
    say = (err if options["json"] else out).write
    for rows in tables:
        began = clock.now()
        broken = chain_fault(rows)
        count = bad = late = 0
        with progress(f"verify {rows.table}, days", None, sys.stderr) as advance:
            for found in verify(connection.connection, rows, options["day"]):
                advance(1)
                objects.append({**asdict(found), "day": str(found.day)})
                count, bad, late = count + 1, bad + bool(found.fault), late + found.late
                if found.fault:
                    say(f"{found.table} {found.day}: {found.fault}")
        if broken:
            say(f"{rows.table}: {broken}")
        code = 1 if broken or bad else code
        if options["day"] is None:
            _note(rows, began, count, bad + bool(broken), err)
        if not options["json"]:
            newest = newest_seal(rows)
            chain = f"chain {'broken' if broken else 'whole'}, newest seal {newest}"
            out.write(
                f"{rows.table}: {counted(count, 'day')} read, {counted(bad, 'differs', 'differ')}, "
                f"{counted(late, 'late row')}; {chain if newest else 'no day has a seal yet'}",
            )
    if options["json"]:
        out.write(json.dumps({"ok": code == 0, "days": objects}))
    return code


def _refuse_unsealed(tables: Sequence[DayRows], day: date | None) -> None:
    """Raise NotSealable for a day that was never sealed: to check it would find nothing wrong."""
    names = [rows.table for rows in tables]
    if day is None or DaySeal.objects.filter(table__in=names, day=day).exists():
        return
    if any(day in dict(verification.unsealed(connection.connection, rows)) for rows in tables):
        return  # it has to have a seal, and verify says that it has none
    raise NotSealable(
        f"{day} has no seal in {', '.join(names)}, so there is nothing to check it against. "
        "`partitions seal` seals a day that is finished"
    )


def _note(rows: DayRows, began: datetime, days: int, faults: int, err: OutputWrapper) -> None:
    """Where nothing can be written, such as on a standby, the days are checked all the same."""
    try:
        verification.note(rows.table, began, days, faults)
    except Error as error:
        err.write(f"{rows.table}: the result is not recorded for the metrics: {describe(error)}")


def verify_archive(
    store: Store,
    entity: Entity | None,
    options: dict[str, Any],
    out: OutputWrapper,
    err: OutputWrapper,
) -> int:
    """Check the files of the archive, longest unchecked first; returns the exit code."""
    connection.ensure_connection()
    found = waiting(entity, options["day"])
    if options["day"] is not None and not found.exists():
        raise ArchiveError(
            f"the archive has no day {options['day']}"
            + (f" of {entity.table}" if entity else "")
            + ". `partitions list` and the archive say which days there are"
        )
    say = (err if options["json"] else out).write
    total = found.aggregate(total=Sum("file_bytes"))["total"] or 0
    objects, read = [], 0
    with progress("verify archive, bytes", total, sys.stderr) as advance:
        for each in scrub(store, found, options["seconds"]):
            advance(each.bytes)
            read += each.bytes
            objects.append({**asdict(each), "day": str(each.day)})
            if each.fault:
                say(f"{each.table} {each.day}: {each.fault}")
    faulty = waiting(entity, options["day"]).exclude(fault="").count()
    if options["json"]:
        out.write(json.dumps({"ok": not faulty, "days": objects}))
    else:
        out.write(
            f"{counted(len(objects), 'archived day')} read ({counted(read, 'byte')}). "
            f"{_state(found)}",
        )
    return 1 if faulty else 0


def _state(found: QuerySet[ArchivedDay]) -> str:
    """How far the checks of all these days have come, over all runs."""
    never = found.filter(checked_at=None).count()
    faulty = found.exclude(fault="").count()
    days = counted(found.count(), "day")
    fault = counted(faulty, "has a fault", "have a fault")
    text = f"Of {days}, {fault}, {counted(never, 'was never read', 'were never read')}"
    oldest = found.aggregate(oldest=Min("checked_at"))["oldest"]
    if oldest is None:
        return f"{text}."
    return f"{text}; the oldest check is of {oldest:%Y-%m-%d %H:%M} UTC."
