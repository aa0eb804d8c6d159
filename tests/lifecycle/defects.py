"""Defects that Annals once had. Each can be put back, to see that the lifecycle test finds it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import date
from functools import partial
from typing import Any
from unittest import mock

import psycopg
from psycopg import errors, sql

from annals.management.partitions import nightly
from history.common import clock
from history.kinds.entities import EntityKind
from history.retention import packing
from history.retention.archive import manifest, restore, write
from history.retention.archive.manifest import Manifest
from history.retention.archive.rows import MergedDayRows
from history.retention.archive.store import ArchiveError, ArchiveStore
from history.retention.seals import seal
from history.store.blocks import codec, dictionaries
from history.store.blocks.dictionaries import Dictionary
from history.store.blocks.queries import count_versions
from history.store.database import forms
from history.store.days import day_locks, days, table_swap
from history.store.days.canonical import Connection
from history.store.days.days import DayState
from history.store.days.window import Window
from ingest.messages.decode import ExpiredVersionError, decode
from ingest.messages.message import KafkaMessage
from ingest.messages.rejection import RejectedMessageError
from ingest.quarantine import messages
from ingest.store import fast_path, missing_days, retry_store, transaction

# A function that replaces an existing attribute of a module or class.
Replace = Callable[[Any, str, Any], None]


def _overwrite_archive(replace: Replace) -> None:
    def archive(
        connection: Connection,
        store: ArchiveStore,
        entity: EntityKind,
        day: date,
        source: sql.Composable,
    ) -> Manifest:
        rows = MergedDayRows(connection, store, entity, source)
        day_manifest = manifest.load_manifest(store, entity.table, day)
        if day_manifest and rows.compute_digest() == day_manifest.digest:
            return day_manifest
        number = day_manifest.generation + 1 if day_manifest else 1
        return write._write_generation(rows, write._Generation(store, entity, day, number))

    replace(write, "archive_day", archive)
    replace(write.DayArchiver, "_check_noted_day", lambda *_: None)


def _create_dropped_day(replace: Replace) -> None:
    provide, ever = missing_days.create_missing_partitions, Window(date.min, date(9999, 1, 1))
    replace(
        missing_days,
        "create_missing_partitions",
        lambda connection, batch, _: provide(connection, batch, ever),
    )


def _drop_row_in_flight(replace: Replace) -> None:
    replace(restore._RestoreMerge, "settle", lambda *_: None)


def _expire_rows_of_held_day(replace: Replace) -> None:
    def expire(connection: Connection, messages: Any, window: Window, *more: Any) -> list[Any]:
        old = [item for item in messages if _is_old(item, window)]
        other_messages = [item for item in messages if item not in old]
        stored = retry_store.store_messages(connection, other_messages, window, *more)
        return [*(retry_store.MessageOutcome(item, "expired") for item in old), *stored]

    replace(missing_days, "admit_expired", lambda *_: None)
    replace(messages, "store_messages", expire)


def _is_old(message: KafkaMessage, window: Window) -> bool:
    try:
        decode(message, window)
    except ExpiredVersionError:
        return True
    except RejectedMessageError:
        pass
    return False


def _fill_in_place(replace: Replace) -> None:
    def fill(
        connection: Connection, store: ArchiveStore, entity: EntityKind, day_manifest: Manifest
    ) -> None:
        place = _drop_table_of_day(connection, day_manifest)
        with connection.transaction():
            days.create_detached_table(connection, place, day_manifest.day, days.RESTORED)
        try:
            restore._load_archived_rows(connection, store, entity, place.child, day_manifest)
        except BaseException:
            connection.execute(sql.SQL("DROP TABLE {}").format(place.child))
            raise
        day_locks.retry_lock(
            partial(_attach, connection, place, day_manifest.day), day_locks.LOCK_WAIT_S
        )

    written = transaction.BatchWriter.write

    def stop_at_foreign_table(self: Any, *args: Any) -> Any:
        try:
            return written(self, *args)
        except days.ForeignTableError as error:
            raise psycopg.OperationalError(f"ForeignTableError: {error}") from error

    replace(restore, "_restore_rows", fill)
    replace(days.DayTable, "is_created_by_annals", days.DayTable.is_droppable)
    replace(missing_days, "REFUSED_ERRORS", (errors.InsufficientPrivilege,))
    replace(transaction.BatchWriter, "write", stop_at_foreign_table)


def _drop_table_of_day(connection: Connection, day_manifest: Manifest) -> days.DayTable:
    """Drop the partition of a day, or the table that an interrupted restore left behind.

    Returns:
        The table of the day. The table does not exist now, so a restore can create it.

    Raises:
        ArchiveError: The partition has rows.
    """
    place = days.locate_day(connection, day_manifest.table, day_manifest.day)

    def check_empty(_: days.DayTable) -> None:
        if rows := count_versions(connection, place.child):
            raise ArchiveError(
                f"{day_manifest.table} {day_manifest.day} exists and has {rows} rows"
            )

    if place.state is DayState.DETACHED and place.comment == days.RESTORED:
        connection.execute(sql.SQL("DROP TABLE {}").format(place.child))
    elif place.state is not DayState.ABSENT:
        check_empty(place)
        days.drop_partition(connection, day_manifest.table, day_manifest.day, confirm=check_empty)
    return days.locate_day(connection, day_manifest.table, day_manifest.day)


def _attach(connection: Connection, place: days.DayTable, day: date) -> None:
    with connection.transaction():
        connection.execute(f"SET LOCAL lock_timeout = {day_locks.LOCK_TIMEOUT_MS}")
        days.attach_table(connection, place, day)


def _seal_empty_days(replace: Replace) -> None:
    due, check = seal.find_days_to_seal, seal._check_rows

    def find_without_waiting(
        existing: Any, today: date, after_days: int, find_waiting: Any, tables: Any
    ) -> Any:
        return due(existing, today, after_days, lambda _: {}, tables)

    def check_some(table: str, day: date, rows: int) -> None:
        if rows:
            check(table, day, rows)

    replace(seal, "find_filled", set)
    replace(nightly, "find_days_to_seal", find_without_waiting)
    replace(seal, "_check_rows", check_some)


def _skip_search_of_blocks(replace: Replace) -> None:
    def load_false_marks(connection: Any, table: str, dates: Any) -> dict[date, bool]:
        return dict.fromkeys(original(connection, table, dates), False)

    original = days.load_sealed_days
    replace(days, "load_sealed_days", load_false_marks)


def _swap_without_comparing(replace: Replace) -> None:
    pack = codec.BlockPacker.pack_block
    replace(
        codec.BlockPacker,
        "pack_block",
        lambda self, rows: pack(self, [(*rows[0][:-1], b"{}"), *rows[1:]]),
    )
    replace(packing.DayRewrite, "compare_versions", lambda *_: None)


def _lose_dictionary(replace: Replace) -> None:
    dictionary = Dictionary(b'{"exact": 12345678901234567890.10, "number": "N0", "content": 1}')

    def load_other_dictionary(*_: Any) -> Dictionary:
        dictionaries._dictionaries_by_number[dictionary.number] = dictionary
        return dictionary

    replace(packing.DayRewrite, "choose_dictionary", load_other_dictionary)


def _mix_applications_in_block(replace: Replace) -> None:
    def cut(rows: Any) -> Any:
        return codec.split_into_blocks([(*row[:6], *rows[-1][6:-1], row[-1]) for row in rows])

    replace(packing, "split_into_blocks", cut)
    replace(packing.DayRewrite, "compare_versions", lambda *_: None)


def _keep_only_noted_rows(replace: Replace) -> None:
    """Bring back a defect of an earlier release: a swap loses rows.

    Of the rows that arrive during a swap, only rows with an entry in `late_row` get into the new
    table.
    """
    noted = sql.SQL(
        "SELECT row_id AS id, updated_at, late_row.version FROM late_row JOIN {old} AS stored"
        " ON stored.id = row_id AND stored.version = late_row.version"
    )

    def add(self: Any, connection: Connection, entity: EntityKind, place: days.DayTable) -> int:
        return table_swap.add_missing_rows(connection, entity, place, noted.format(old=place.child))

    replace(table_swap.TableWatch, "add_noted_rows", add)
    replace(table_swap.TableWatch, "settle", add)
    replace(table_swap, "count_cheaply", lambda *_: None)


def _leave_packed_day_unguarded(replace: Replace) -> None:
    replace(table_swap, "guard_table", lambda *_: None)


def _find_packed_days_by_clock(replace: Replace) -> None:
    """Bring back a defect of an earlier release: the consumer trusts the clock of its machine.

    The consumer searches blocks only in days before the current day of this clock.
    """
    replace(table_swap, "guard_table", lambda *_: None)
    replace(fast_path, "_get_server_time", lambda _: clock.now())


def _pack_beside_earlier_release(replace: Replace) -> None:
    replace(forms, "_refuse_unready", lambda *_: None)


# By name, a description of the defect and the function that puts it back.
DEFECTS: dict[str, tuple[str, Callable[[Replace], None]]] = {
    "1": ("a day is archived again with fewer rows", _overwrite_archive),
    "1b": ("a batch decoded before midnight creates a dropped day", _create_dropped_day),
    "4": ("restore drops a row that a consumer has in flight", _drop_row_in_flight),
    "8": ("rows of a held day count as expired", _expire_rows_of_held_day),
    "9": ("restore fills the table of the day in place", _fill_in_place),
    "25a": ("a row that is in a block is stored again", _skip_search_of_blocks),
    "25b": ("a block with another document is swapped in uncompared", _swap_without_comparing),
    "25c": ("the dictionary of a block is not stored", _lose_dictionary),
    "25d": ("a block has versions of two applications", _mix_applications_in_block),
    "35a": ("packing loses arriving rows that are not in late_row", _keep_only_noted_rows),
    "35b": ("a packed day takes a version that a block has", _leave_packed_day_unguarded),
    "35c": ("the consumer trusts its clock to find packed days", _find_packed_days_by_clock),
    "35d": ("a day is packed beside an earlier release", _pack_beside_earlier_release),
    "12": ("maintain seals days that never had a row", _seal_empty_days),
}


@contextmanager
def put_back(name: str) -> Iterator[None]:
    """Bring a mended defect back into the code until the `with` block ends."""
    with ExitStack() as stack:

        def replace(owner: Any, attribute: str, value: Any) -> None:
            stack.enter_context(mock.patch.object(owner, attribute, value))

        DEFECTS[name][1](replace)
        yield
