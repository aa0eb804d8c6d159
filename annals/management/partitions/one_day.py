"""The verbs of `annals partitions` that change one day of the chosen tables."""

import sys
from collections.abc import Callable
from datetime import date

from django.core.management.base import CommandError
from django.db import connection

from annals.access.journal import days as journal
from annals.access.journal.actions import AccessAction
from annals.access.journal.write import record_operator_access
from annals.management.partitions.call import PartitionsCall, open_archive, require_right_clock
from history.common.text_tables import pluralize
from history.kinds.entities import ENTITIES, EntityKind
from history.kinds.kind import DayRows
from history.management.progress import show_progress
from history.retention import catalog, packing
from history.retention.archive import operator_decisions, provenance
from history.retention.archive.restore import restore_day
from history.retention.archive.store import ArchiveError, ArchiveStore
from history.retention.partition_output import format_size
from history.retention.repair import repair_day
from history.retention.run_lock import hold_run_lock
from history.retention.seals.seal import seal_day
from history.retention.seals.verification import check_sealed_day
from history.store.database import forms
from history.store.days.canonical import Connection
from history.store.days.days import build_partition_name, is_packed, release_day


def pack_one_day(call: PartitionsCall) -> int:
    """Pack a day: store up to 64 versions of a document in one row."""
    day = call.options["day"]
    return call.run_locked(
        lambda pg_connection, entity: _rewrite_day(
            packing.pack_day, "Packed", pg_connection, entity, day
        )
    )


def unpack_days(call: PartitionsCall) -> int:
    """Unpack one day or all days. Once no day is packed, an earlier release can be used again."""
    day: date | None = call.options["day"]
    if (day is None) is not call.options["all"]:
        raise CommandError("Name the day, or give --all.", returncode=2)
    require_right_clock()
    with hold_run_lock():
        entities = {entity.table: entity for entity in call.choose_entities()}
        table_days = [(table, day) for table in entities] if day else _find_packed_days()
        code = 0
        for table, packed_day in table_days:
            if table in entities:
                code = max(code, _unpack_one_day(call, entities[table], packed_day))
        packed_days = _find_packed_days()
        if not packed_days:
            forms.withdraw_mark(connection.connection)
            call.stdout.write("No day is packed: an earlier release can read every day.")
        elif not day:
            call.stdout.write(f"{pluralize(len(packed_days), 'table')} of days are still packed.")
    return code


def _unpack_one_day(call: PartitionsCall, kind: EntityKind, day: date) -> int:
    return call.run_for_each(
        lambda pg_connection, entity: _rewrite_day(
            packing.unpack_day, "Unpacked", pg_connection, entity, day
        ),
        [kind],
    )


def _rewrite_day(
    rewrite: Callable[..., packing.RewriteResult],
    verb: str,
    pg_connection: Connection,
    entity: EntityKind,
    day: date,
) -> str:
    """Pack or unpack a day of one table, and return a sentence about it."""
    with show_progress(f"{entity.table} {day}, rows", None, sys.stderr) as advance:
        result = rewrite(pg_connection, entity, day, progress=advance)
    return (
        f"{verb} {entity.table} {day}: {pluralize(result.rows, 'row')}, "
        f"{format_size(result.before)} before, {format_size(result.after)} now."
    )


def _find_packed_days() -> list[tuple[str, date]]:
    """Return the table and the day of each packed day."""
    connection.ensure_connection()
    partitions = catalog.read_partitions(connection, [entity.table for entity in ENTITIES])
    return [
        (partition.table, partition.day)
        for partition in partitions
        if partition.day and is_packed(connection.connection, partition.table, partition.day)
    ]


def seal_one_day(call: PartitionsCall) -> int:
    """Check a day against the newest seal of the day, if there is one, and store a new seal."""
    day = call.options["day"]

    def seal_table(pg_connection: Connection, rows: DayRows) -> str:
        check_sealed_day(pg_connection, rows, day)
        new_seal = seal_day(pg_connection, rows, day)
        return f"Sealed {rows.table} {day}: {pluralize(new_seal.rows, 'row')}, {new_seal.seal}"

    if call.options["entity"] != journal.NAME:
        return call.run_locked(seal_table)
    require_right_clock()
    with hold_run_lock():
        return call.run_for_each(seal_table, [journal.ROWS])


def repair_packed_day(call: PartitionsCall) -> int:
    """Remove the plain row of each version that a packed day also has in a block.

    If the content of the row differs from the block, the row is moved to the table doubled_version.
    """
    day = call.options["day"]

    def repair_table(pg_connection: Connection, entity: EntityKind) -> str:
        record_operator_access(AccessAction.OTHER, f"partitions repair {day}", entity=entity.name)
        result = repair_day(pg_connection, entity, day)
        for key in result.differing:
            call.stdout.write(
                f"{entity.table} {day}: {key.id} version {key.version} was stored twice with"
                " different contents; the packed one stays, the other is moved to the table"
                " doubled_version"
            )
        count = len(result.equal) + len(result.differing)
        return (
            f"Repaired {entity.table} {day}: {pluralize(count, 'row')} removed,"
            f" {len(result.differing)} of them with different content."
        )

    return call.run_locked(repair_table)


def restore_archived_day(call: PartitionsCall) -> int:
    """Bring a day back from the archive."""
    store, day = open_archive(), call.options["day"]

    def restore_table(pg_connection: Connection, entity: EntityKind) -> str:
        record_operator_access(AccessAction.OTHER, f"partitions restore {day}", entity=entity.name)
        provenance.check_provenance(pg_connection, store, entity, day)
        restored = restore_day(pg_connection, store, entity, day)
        return f"Restored {entity.table} {day}: {pluralize(restored.rows, 'row')}."

    return call.run_locked(restore_table)


def release_restored_day(call: PartitionsCall) -> int:
    """Let `maintain` drop a restored day again."""
    day = call.options["day"]

    def release_table(pg_connection: Connection, entity: EntityKind) -> str:
        if not release_day(pg_connection, entity.table, day):
            name = build_partition_name(entity.table, day)
            raise ArchiveError(f"{name} is not a restored day, so there is nothing to release")
        return f"Released {entity.table} {day}."

    return call.run_locked(release_table)


def forget_archived_day(call: PartitionsCall) -> int:
    """Remove a day from the archive."""
    return _decide_on_archive(
        call, operator_decisions.forget_day, "Removed {} from the archive: {}."
    )


def adopt_archived_day(call: PartitionsCall) -> int:
    """Accept an archived day although the database has no record of archiving its rows."""
    return _decide_on_archive(
        call, operator_decisions.adopt_day, "Accepted the archived rows of {}: {}."
    )


def _decide_on_archive(
    call: PartitionsCall, decide: Callable[[ArchiveStore, str, date], int], sentence: str
) -> int:
    """Carry out an operator's decision about an archived day.

    Before that, the access journal gets an entry about the decision.

    Args:
        decide: Carries out the decision for one table, and returns the number of rows.
        sentence: The text to print for a table. The first placeholder stands for the table and the
            day, the second for the number of rows.
    """
    store, day, reason = open_archive(), call.options["day"], call.options["why"]
    command_line = f"partitions {call.options['action']} {day}"

    def decide_on_table(_: Connection, entity: EntityKind) -> str:
        record_operator_access(AccessAction.OTHER, command_line, reason, entity=entity.name)
        rows = decide(store, entity.table, day)
        return sentence.format(f"{entity.table} {day}", pluralize(rows, "row"))

    return call.run_locked(decide_on_table)
