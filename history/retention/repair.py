"""Repairs a packed day that has versions twice, so that it has every version once.

Earlier releases could store a version a second time, as a plain row, if a block had it already. The
content of the block was stored first, and stays. The second row is deleted if its content is equal.
Otherwise it is moved to the table doubled_version and reported. Repaired documents become plain
rows.

A sealed day gets a new seal in the same transaction. Before the repair, the day may differ from its
seal, because it may have been sealed before the second rows were stored. The repair is refused only
if the repaired day differs from the seal, too.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import groupby
from operator import attrgetter

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from history.common import clock
from history.common.explained_errors import ExplainedError
from history.kinds.entities import EntityKind
from history.models import DaySeal
from history.retention.seals import late_rows, verification
from history.retention.seals.seal import add_seal
from history.store.blocks import dictionaries, queries
from history.store.blocks.codec import CanonicalRow
from history.store.days import day_locks, days, doubled_versions
from history.store.days.canonical import (
    Connection,
    build_select_list,
    compute_digest,
    encode_row,
    list_columns,
)
from history.store.days.day_locks import retry_lock, set_short_lock_timeout
from history.store.days.days import DayState, DayTable
from history.store.days.doubled_versions import DoubledKey


class NotRepairableError(ExplainedError, RuntimeError):
    """Raised when a day cannot be repaired. The message says why."""


@dataclass(frozen=True, slots=True)
class RepairResult:
    """The versions that were twice in a day, by what the repair did with the second row."""

    # The second row had equal content and was deleted.
    equal: list[DoubledKey] = field(default_factory=list)
    # The second row had other content and was moved to doubled_version.
    differing: list[DoubledKey] = field(default_factory=list)


def repair_day(connection: Connection, entity: EntityKind, day: date) -> RepairResult:
    """Remove the second row of each version that a day has twice.

    Other sessions can read the day meanwhile. Sessions that write to the day wait. Needs the run
    lock, and a `connection` in autocommit mode.

    Raises:
        NotRepairableError: The partition of the day does not exist or was not created by Annals.
        SealedDayChangedError: The rows of the day differ from the seal, and would still differ from
            the seal after the repair.
        DamagedBlockError: A block of a document that has a version twice cannot be read.
        psycopg.errors.LockNotAvailable: A transaction that writes to the day stays open.
    """
    day_table = days.locate_day(connection, entity.table, day)
    if day_table.state is not DayState.ATTACHED or not day_table.is_created_by_annals:
        raise NotRepairableError(
            f"{entity.table} {day}: the partition does not exist or was not created by Annals"
        )
    changed = _find_change(connection, entity, day)
    result = RepairResult()
    with connection.transaction():
        retry_lock(lambda: _stop_writers(connection, day_table), day_locks.LOCK_WAIT_S)
        dictionaries.read_new_dictionaries(connection)
        keys = doubled_versions.find_doubled_versions(connection, entity, day_table.child)
        for id, _ in groupby(keys, attrgetter("id")):
            _repair_document(connection, entity, day, day_table, id, result)
        if changed is not None:
            if not keys:
                raise changed
            verification.check_locked(connection, entity, day, day_table)
        if keys and DaySeal.objects.filter(table=entity.table, day=day).exists():
            add_seal(
                connection, entity.table, day, compute_digest(connection, entity, day_table.child)
            )
            late_rows.include_late_rows(connection, entity.table, day)
    return result


def _find_change(
    connection: Connection, entity: EntityKind, day: date
) -> verification.SealedDayChangedError | None:
    """Return the error if the rows of the day differ from the seal, or None."""
    try:
        verification.check_sealed_day(connection, entity, day)
    except verification.SealedDayChangedError as error:
        return error
    return None


def _stop_writers(connection: Connection, day_table: DayTable) -> None:
    with connection.transaction():
        set_short_lock_timeout(connection)
        days.limit_silence(connection)
        lock = sql.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE")
        connection.execute(lock.format(day_table.child))


def _repair_document(
    connection: Connection,
    entity: EntityKind,
    day: date,
    day_table: DayTable,
    id: str,
    result: RepairResult,
) -> None:
    """Replace the rows of one document by plain rows, one for each version.

    Adds the versions that the document had twice to `result`.
    """
    rows_by_key: dict[tuple[int, int], CanonicalRow] = {}
    differing_rows: list[CanonicalRow] = []
    removed_hashes: Counter[bytes] = Counter()
    for row in _read_versions(connection, entity, day_table, id):
        first = rows_by_key.setdefault(row[1:3], row)
        if first is row:
            continue
        removed_hashes[hashlib.sha256(encode_row(row)).digest()] += 1
        key = DoubledKey(id, row[1], queries.EPOCH + timedelta(microseconds=row[2]))
        if _is_equal(connection, first, row):
            result.equal.append(key)
        else:
            result.differing.append(key)
            differing_rows.append(row)
    connection.execute(sql.SQL("DELETE FROM {} WHERE id = %s").format(day_table.child), [id])
    names = list_columns(entity)
    _insert_rows(connection, day_table.child, names, rows_by_key.values())
    _insert_rows(
        connection,
        sql.Identifier("doubled_version"),
        ["row_id" if name == "id" else name for name in names],
        differing_rows,
        {"table": entity.table, "day": day, "taken_at": clock.now()},
    )
    late_rows.forget_removed_rows(connection, entity.table, day, removed_hashes)


def _read_versions(
    connection: Connection, entity: EntityKind, day_table: DayTable, id: str
) -> Iterator[CanonicalRow]:
    """Yield the versions of a document on a day.

    Versions in blocks come first, because they were stored first.
    """
    query = sql.SQL(
        "SELECT {}, {} FROM {} WHERE id = %s ORDER BY packed IS NULL, version, updated_at"
    ).format(
        build_select_list(entity),
        sql.SQL(", ").join(map(sql.Identifier, queries.BLOCK_COLUMNS)),
        day_table.child,
    )
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        rows = cursor.execute(query, [id], binary=True).fetchall()
    for row in rows:
        yield from queries.iterate_versions(entity.table, [row], None)


def _decode_snapshot(row: CanonicalRow) -> str | None:
    snapshot = row[-1]
    return snapshot.decode() if isinstance(snapshot, bytes) else snapshot


def _is_equal(connection: Connection, first: CanonicalRow, second: CanonicalRow) -> bool:
    """Return whether two rows have equal values. PostgreSQL compares the snapshots."""
    if first[:-1] != second[:-1]:
        return False
    texts = [_decode_snapshot(first), _decode_snapshot(second)]
    if texts[0] == texts[1]:
        return True
    return connection.execute("SELECT %s::jsonb = %s::jsonb", texts).fetchone() == (True,)


def _insert_rows(
    connection: Connection,
    table: sql.Identifier,
    names: Sequence[str],
    rows: Iterable[CanonicalRow],
    extra: Mapping[str, object] | None = None,
) -> None:
    """Insert rows as plain rows.

    Args:
        names: The columns of the rows.
        rows: Rows with the columns of history.store.days.canonical.build_select_list.
        extra: Values of further columns, the same for all rows.
    """
    forms = {"updated_at": "'epoch'::timestamptz + %s * interval '1 microsecond'"}
    extra_values = extra or {}
    query = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
        table,
        sql.SQL(", ").join(map(sql.Identifier, (*names, *extra_values))),
        sql.SQL(", ").join([sql.SQL(forms.get(name, "%s")) for name in (*names, *extra_values)]),
    )
    for row in rows:
        connection.execute(query, [*row[:-1], _decode_snapshot(row), *extra_values.values()])
