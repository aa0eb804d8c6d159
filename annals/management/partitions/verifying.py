"""`annals partitions verify`: checks sealed days in the tables, or the files of the archive."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import date, datetime

from django.core.management.base import OutputWrapper
from django.db import Error, connection
from django.db.models import Min, QuerySet, Sum

from annals.access.journal import days as journal
from annals.management.partitions.call import PartitionsCall, open_archive
from history.common import clock
from history.common.error_text import describe
from history.common.text_tables import pluralize
from history.kinds.entities import BY_NAME, EntityKind
from history.kinds.kind import DayRows
from history.management.progress import show_progress
from history.models import ArchivedDay, DaySeal
from history.retention.archive.archive_check import check_archived_days, list_days_to_check
from history.retention.archive.store import ArchiveError, ArchiveStore
from history.retention.seals import verification
from history.retention.seals.seal import NotSealableError
from history.retention.seals.verification import find_chain_fault, load_newest_seal, verify_days


def verify(call: PartitionsCall) -> int:
    """Check sealed days against their seals, or with --archive the files of the archive."""
    name = call.options["entity"]
    if call.options["archive"]:
        return _verify_archive(call, open_archive(), BY_NAME.get(name))
    versions = [] if name == journal.NAME else call.choose_entities()
    journals = [] if name in BY_NAME else [journal.ROWS]
    return _verify_tables(call, [*versions, *journals])


def _verify_tables(call: PartitionsCall, tables: Sequence[DayRows]) -> int:
    """Check the sealed days and the chain of seals of each table, and return the exit code."""
    options, out, err = call.options, call.stdout, call.stderr
    connection.ensure_connection()
    _refuse_unsealed(tables, options["day"])
    code, objects = 0, []
    write_problem = (err if options["json"] else out).write
    for rows in tables:
        began = clock.now()
        chain_problem = find_chain_fault(rows)
        count = faulty = late = 0
        with show_progress(f"verify {rows.table}, days", None, sys.stderr) as advance:
            for verdict in verify_days(connection.connection, rows, options["day"]):
                advance(1)
                objects.append({**asdict(verdict), "day": str(verdict.day)})
                count, faulty, late = count + 1, faulty + bool(verdict.fault), late + verdict.late
                if verdict.fault:
                    write_problem(f"{verdict.table} {verdict.day}: {verdict.fault}")
        if chain_problem:
            write_problem(f"{rows.table}: {chain_problem}")
        code = 1 if chain_problem or faulty else code
        if options["day"] is None:
            _record_check(rows, began, count, faulty + bool(chain_problem), err)
        if not options["json"]:
            newest = load_newest_seal(rows)
            chain = f"chain {'broken' if chain_problem else 'whole'}, newest seal {newest}"
            out.write(
                f"{rows.table}: {pluralize(count, 'day')} read, "
                f"{pluralize(faulty, 'differs', 'differ')}, "
                f"{pluralize(late, 'late row')}; {chain if newest else 'no day has a seal yet'}",
            )
    if options["json"]:
        out.write(json.dumps({"ok": code == 0, "days": objects}))
    return code


def _refuse_unsealed(tables: Sequence[DayRows], day: date | None) -> None:
    """Refuse to check a day that has no seal, because the check has nothing to compare it with.

    A day that must have a seal is not refused: the check reports that the seal is missing.

    Args:
        day: The day to check. None: all days are checked, and nothing is refused.

    Raises:
        NotSealableError: The day has no seal.
    """
    names = [rows.table for rows in tables]
    if day is None or DaySeal.objects.filter(table__in=names, day=day).exists():
        return
    if any(
        day in dict(verification.find_unsealed_days(connection.connection, rows)) for rows in tables
    ):
        return  # the day must have a seal: the check reports that the seal is missing
    raise NotSealableError(
        f"{day} has no seal in {', '.join(names)}, so there is nothing to check it against. "
        "`partitions seal` seals a day that is finished"
    )


def _record_check(
    rows: DayRows, began: datetime, days: int, faults: int, err: OutputWrapper
) -> None:
    """Record the result of a check in the database, from which the metrics read it.

    If the database cannot record it, for example on a standby, print the reason.
    """
    try:
        verification.record_check(rows.table, began, days, faults)
    except Error as error:
        err.write(f"{rows.table}: the result is not recorded for the metrics: {describe(error)}")


def _verify_archive(call: PartitionsCall, store: ArchiveStore, entity: EntityKind | None) -> int:
    """Check the files of the archive, and return the exit code.

    The days with the oldest check come first.
    """
    options, out, err = call.options, call.stdout, call.stderr
    connection.ensure_connection()
    archived_days = list_days_to_check(entity, options["day"])
    if options["day"] is not None and not archived_days.exists():
        raise ArchiveError(
            f"the archive has no day {options['day']}"
            + (f" of {entity.table}" if entity else "")
            + ". `partitions list` shows which days exist"
        )
    write_problem = (err if options["json"] else out).write
    total = archived_days.aggregate(total=Sum("file_bytes"))["total"] or 0
    objects, bytes_read = [], 0
    with show_progress("verify archive, bytes", total, sys.stderr) as advance:
        for result in check_archived_days(store, archived_days, options["seconds"]):
            advance(result.bytes)
            bytes_read += result.bytes
            objects.append({**asdict(result), "day": str(result.day)})
            if result.fault:
                write_problem(f"{result.table} {result.day}: {result.fault}")
    faulty = list_days_to_check(entity, options["day"]).exclude(fault="").count()
    if options["json"]:
        out.write(json.dumps({"ok": not faulty, "days": objects}))
    else:
        out.write(
            f"{pluralize(len(objects), 'archived day')} read ({pluralize(bytes_read, 'byte')}). "
            f"{_describe_progress(archived_days)}",
        )
    return 1 if faulty else 0


def _describe_progress(archived_days: QuerySet[ArchivedDay]) -> str:
    """Return a sentence: how many of these days have a fault, and how many were never checked."""
    never = archived_days.filter(checked_at=None).count()
    faulty = archived_days.exclude(fault="").count()
    days = pluralize(archived_days.count(), "day")
    fault = pluralize(faulty, "has a fault", "have a fault")
    text = f"Of {days}, {fault}, {pluralize(never, 'was never read', 'were never read')}"
    oldest = archived_days.aggregate(oldest=Min("checked_at"))["oldest"]
    if oldest is None:
        return f"{text}."
    return f"{text}; the oldest check is of {oldest:%Y-%m-%d %H:%M} UTC."
