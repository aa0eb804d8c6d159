"""Stores rows some of which are stored already, or cannot be stored."""

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import NamedTuple

import msgspec
import psycopg
from psycopg import errors, sql
from psycopg.rows import tuple_row

from history.common.single_row import require_row
from history.kinds.entities import EntityKind
from history.store.blocks.codec import DamagedBlockError
from history.store.blocks.queries import build_damage_error, build_versions_query, read_documents
from history.store.days import days
from history.store.days.days import WHOLE_ROWS
from history.store.days.window import MICROSECONDS_PER_DAY, compute_day
from history.store.search_index.keys import NewSearchKeys
from ingest.messages.explanations import Code, Explanation
from ingest.messages.message import Message
from ingest.messages.rejection import Reason
from ingest.store.batch import BadMessage, DecodedRow
from ingest.store.copy import (
    RefusedRow,
    copy_pieces,
    encode_row,
    get_copy_columns,
    isolate_bad_rows,
    make_bad_message,
    prefix_number,
)
from ingest.store.fast_path import copy_rows, store_search_keys
from ingest.store.ledger import Connection

log = logging.getLogger(__name__)

Key = tuple[str, int, int]
_NUMBERS = msgspec.json.Decoder(list[int])

# Each key is looked up by primary key: ingest.store.session has the settings for that. JSON arrays,
# one per column, are cheaper to build and to parse than SQL arrays and rows. {stored_at}: the time
# of the row that has the version; of a block, that of its newest version.
_LOOK_UP = """
SELECT coalesce(json_agg(k.n - 1), '[]')::text FROM (
    SELECT n, id, version::int AS version,
        'epoch'::timestamptz + moment::bigint * interval '1 microsecond' AS at
    FROM ROWS FROM (json_array_elements_text(%s::json), json_array_elements_text(%s::json),
        json_array_elements_text(%s::json)) WITH ORDINALITY AS u(id, moment, version, n)
) k JOIN {table} t ON t.id = k.id AND {same}
WHERE t.{stored_at} >= %s::timestamptz AND t.{stored_at} < %s::timestamptz
"""

# Not compressed, and kept whole: these rows are read once.
_MAKE_STAGE = """
CREATE TEMP TABLE {stage} (n integer, LIKE {table}) WITH ({whole_rows}) ON COMMIT DELETE ROWS;
ALTER TABLE {stage} ALTER data SET STORAGE EXTERNAL
"""

_COMPARED = """
SELECT s.n, {differs} FROM {stage} s JOIN {table} t
    ON t.id = s.id AND t.updated_at = s.updated_at AND t.version = s.version
WHERE s.updated_at >= %(start)s::timestamptz AND s.updated_at < %(end)s::timestamptz
    AND t.updated_at >= %(start)s::timestamptz AND t.updated_at < %(end)s::timestamptz
    AND t.packed IS NULL
"""

# A block comes with the first of its versions.
_IN_BLOCKS = """
SELECT n, id, stored_at, position, same, text,
    CASE WHEN lag((id, stored_at, stored_version)) OVER () = (id, stored_at, stored_version)
        THEN NULL ELSE packed END
FROM (
    SELECT s.n, s.data::text AS text, t.id, t.stored_at, t.stored_version, t.position, t.packed,
        (s.type, s.client_id, s.author, s.{given})
            IS NOT DISTINCT FROM (t.type, t.client_id, t.author, t.{theirs}) AS same
    FROM {stage} s JOIN {versions} t ON t.id = s.id AND t.in_block AND (t.position = 0
        OR t.stored_at >= s.updated_at AND t.updated_at = s.updated_at AND t.version = s.version)
    WHERE s.updated_at >= %(start)s::timestamptz AND s.updated_at < %(end)s::timestamptz
        AND t.stored_at >= %(start)s::timestamptz AND t.stored_at < %(end)s::timestamptz
    ORDER BY t.id, t.stored_at, t.stored_version OFFSET 0
) AS found
"""


def split_new_and_known(
    connection: Connection, entity: EntityKind, rows: Iterable[DecodedRow]
) -> tuple[list[DecodedRow], list[DecodedRow]]:
    """Return the rows with a new key, and those whose key is stored or came before, in order."""
    firsts: dict[Key, DecodedRow] = {}
    later = [row for row in rows if firsts.setdefault(get_key(row), row) is not row]
    fresh: list[DecodedRow] = []
    known: list[DecodedRow] = []
    for day, candidates in _group_by_day(firsts).items():
        stored = _look_up(connection, entity, day, candidates)
        for number, key_ in enumerate(candidates):
            (known if number in stored else fresh).append(firsts[key_])
    return fresh, known + later


def _look_up(
    connection: Connection, entity: EntityKind, day: date, keys: Sequence[Key]
) -> frozenset[int]:
    """Return the positions in `keys` of the keys that are stored."""
    # A day of a topic that is read again may be packed, and may have plain rows beside its blocks.
    same = "t.updated_at = k.at AND t.version = k.version"
    if days.is_packed(connection, entity.table, day):
        table, stored_at = sql.SQL(build_versions_query(entity)), "stored_at"
        # A block that is not as it was written may have any version of its document and day.
        same = f"(t.position = 0 OR t.stored_at >= k.at AND {same})"
    else:
        table, stored_at = sql.SQL(entity.table), "updated_at"
    query = sql.SQL(_LOOK_UP).format(
        table=table, same=sql.SQL(same), stored_at=sql.Identifier(stored_at)
    )
    arrays = [msgspec.json.encode(column).decode() for column in zip(*keys, strict=True)]
    cursor = connection.execute(query, (*arrays, *days.compute_bounds(day)), prepare=False)
    (numbers,) = require_row(cursor.fetchone())
    return frozenset(_NUMBERS.decode(str(numbers)))


def create_staging_table(connection: Connection, entity: EntityKind) -> None:
    """Create the staging table if it is missing. It is emptied at the end of the transaction."""
    name = f"pg_temp.{_get_stage_name(entity)}"
    if connection.execute("SELECT to_regclass(%s)", (name,)).fetchone() == (None,):
        table = sql.Identifier(entity.table)
        make = sql.SQL(_MAKE_STAGE)
        connection.execute(
            make.format(stage=_get_stage(entity), table=table, whole_rows=WHOLE_ROWS)
        )


class Comparison(NamedTuple):
    """Numbers of staged rows. A row that is in neither set has no stored row to compare with."""

    equal: set[int]
    differing: set[int]


def compare_staged(
    connection: Connection, entity: EntityKind, rows: Sequence[DecodedRow]
) -> Comparison:
    """Compare the staged rows with the stored rows of the same keys."""
    query = sql.SQL(_COMPARED).format(
        stage=_get_stage(entity),
        table=sql.Identifier(entity.table),
        differs=sql.SQL(" OR ").join(
            sql.SQL("t.{0} IS DISTINCT FROM s.{0}").format(sql.Identifier(name))
            for name in get_copy_columns(entity)
            if name not in ("id", "updated_at", "version")
        ),
    )
    numbers: dict[bool, set[int]] = {False: set(), True: set()}
    written = {row.record.updated_at // MICROSECONDS_PER_DAY for row in rows}
    row_days = [compute_day(day * MICROSECONDS_PER_DAY) for day in written]
    packed = days.load_sealed_days(connection, entity.table, row_days)
    for day in row_days:
        start, end = days.compute_bounds(day)
        cursor = connection.execute(query, {"start": start, "end": end}, prepare=False)
        pairs = [(int(str(number)), bool(differs)) for number, differs in cursor]
        if packed.get(day):
            pairs += _compare_with_blocks(connection, entity, day)
        for number, differs in pairs:
            numbers[differs].add(number)
    return Comparison(numbers[False] - numbers[True], numbers[True])


def _compare_with_blocks(
    connection: Connection, entity: EntityKind, day: date
) -> Iterator[tuple[int, bool]]:
    """Yield the number of each staged row that a block has, and whether the two differ."""
    start, end = days.compute_bounds(day)
    query = sql.SQL(_IN_BLOCKS).format(
        stage=_get_stage(entity),
        versions=sql.SQL(build_versions_query(entity)),
        given=sql.SQL("product_instance_id" if entity.parent else "id"),
        theirs=sql.SQL("product" if entity.parent else "id"),
    )
    block: list[bytes] = []
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        cursor.execute(query, {"start": start, "end": end}, prepare=False, binary=True)
        for n, id, at, position, same, text, packed in cursor:
            try:
                if packed is not None:
                    block = []
                    if position == 0:
                        raise build_damage_error(entity.table, id, at)
                    block = read_documents(connection, entity.table, id, at, packed)
            except DamagedBlockError as error:
                log.warning("a message that may be a repeat goes to quarantine: %s", error)
            yield (
                n,
                not block
                or not same
                or not _is_same_document(connection, text, block[position - 1].decode()),
            )


def _is_same_document(connection: Connection, one: str, other: str) -> bool:
    """Whether two texts are one document, as PostgreSQL compares it."""
    if one == other:
        return True
    same = connection.execute("SELECT %s::jsonb = %s::jsonb", (one, other)).fetchone()
    return same == (True,)


def _group_by_day(keys: Iterable[Key]) -> dict[date, list[Key]]:
    grouped: defaultdict[int, list[Key]] = defaultdict(list)
    for key in keys:
        grouped[key[1] // MICROSECONDS_PER_DAY].append(key)
    return {compute_day(day * MICROSECONDS_PER_DAY): day_keys for day, day_keys in grouped.items()}


def get_key(row: DecodedRow) -> Key:
    """Return the identity of a version: the primary key of the tables."""
    record = row.record
    return record.id, record.updated_at, record.version


def _get_stage(entity: EntityKind) -> sql.Identifier:
    return sql.Identifier("pg_temp", _get_stage_name(entity))


def _get_stage_name(entity: EntityKind) -> str:
    return f"stage_{entity.table}"


@dataclass(frozen=True, slots=True)
class StoreOutcome:
    """Which rows were not stored: stored already, or not storable. All others are in the table."""

    repeated: list[Message] = field(default_factory=list)
    rejects: list[BadMessage] = field(default_factory=list)


def store_deduplicated(
    connection: Connection, entity: EntityKind, rows: Sequence[DecodedRow]
) -> StoreOutcome:
    """Store new rows, without their search keys, inside the caller's transaction. Returns the rows
    that were stored before, that differ from the stored row, and that are at fault. Raises
    psycopg.errors.UniqueViolation if another writer stores the same new row at once."""
    return DeduplicatingWriter(connection, entity, isolate=False).store(rows)


def store_isolated(
    connection: Connection, entity: EntityKind, rows: Sequence[DecodedRow]
) -> StoreOutcome:
    """Store rows as `store_deduplicated` does, and their search keys too."""
    return DeduplicatingWriter(connection, entity, isolate=True).store(rows)


class DeduplicatingWriter:
    """One call of store_deduplicated() or store_isolated()."""

    def __init__(self, connection: Connection, entity: EntityKind, isolate: bool) -> None:
        self._connection = connection
        self._entity = entity
        self._isolate = isolate
        self._outcome = StoreOutcome()
        self._known: list[DecodedRow] = []
        # By id(): rows that violated a unique constraint although their key was not stored.
        self._conflicted: set[int] = set()
        # By id(): rows whose stored row was gone when it was to be compared.
        self._gone: set[int] = set()

    def store(self, rows: Sequence[DecodedRow]) -> StoreOutcome:
        waiting = list(rows)
        while waiting or self._known:
            while waiting:
                waiting = self._store_new_rows(waiting)
            known, self._known = self._known, []
            waiting = self._compare(known)
        return self._outcome

    def _store_new_rows(self, rows: Sequence[DecodedRow]) -> list[DecodedRow]:
        """Store the first row of each new key. Returns the rows to look at again."""
        fresh, known = split_new_and_known(self._connection, self._entity, rows)
        refused = isolate_bad_rows(self._connection, self._copy, fresh, conflicts=self._isolate)
        missing = {get_key(refusal.row) for refusal in refused}
        again = [refusal.row for refusal in refused if self._is_new_conflict(refusal)]
        retried = {id(row) for row in again}
        self._reject(refusal for refusal in refused if id(refusal.row) not in retried)
        if not missing:
            self._known += known
            return []
        same_key: list[DecodedRow] = []
        for row in known:
            (same_key if get_key(row) in missing else self._known).append(row)
        return again + self._storable(same_key)

    def _is_new_conflict(self, refused: RefusedRow) -> bool:
        """Whether another writer may have stored the row since it was looked up."""
        row = id(refused.row)
        if not isinstance(refused.error, errors.UniqueViolation) or row in self._conflicted:
            return False
        self._conflicted.add(row)
        return True

    def _copy(self, rows: Sequence[DecodedRow]) -> None:
        copy_rows(self._connection, self._entity, rows)
        if self._isolate:
            keys = NewSearchKeys()
            for row in rows:
                keys.add_record(row.record)
            store_search_keys(self._connection, keys.list_rows())

    def _storable(self, rows: Sequence[DecodedRow]) -> list[DecodedRow]:
        """Return the rows that the types of the columns take, and reject the others."""
        if not rows:
            return []
        with self._connection.transaction(force_rollback=True):
            refused = self._stage(rows)
        self._reject(refused)
        bad = {id(refusal.row) for refusal in refused}
        return [row for row in rows if id(row) not in bad]

    def _stage(self, rows: Sequence[DecodedRow]) -> list[RefusedRow]:
        """COPY repeats with their numbers into the staging table, for compare_staged()."""
        create_staging_table(self._connection, self._entity)
        if self._gone:  # it has the rows of the first comparison
            self._connection.execute(sql.SQL("DELETE FROM {}").format(_get_stage(self._entity)))
        numbers = {id(row): number for number, row in enumerate(rows)}

        def attempt(part: Sequence[DecodedRow]) -> None:
            encoded = (prefix_number(numbers[id(row)], encode_row(row.record)) for row in part)
            names = ("n", *get_copy_columns(self._entity))
            copy_pieces(self._connection, _get_stage(self._entity), names, encoded)

        return isolate_bad_rows(self._connection, attempt, rows)

    def _reject(self, refused: Iterable[RefusedRow]) -> None:
        self._outcome.rejects.extend(make_bad_message(refusal) for refusal in refused)

    def _compare(self, rows: Sequence[DecodedRow]) -> list[DecodedRow]:
        """Separate rows that equal the stored row with their key from rows that differ from it.

        Return the rows whose stored row is gone, to be looked at again: `maintain` detaches a day
        between two statements. Without a row to compare with, nothing is known to be a repeat. A
        row that is gone twice goes to quarantine, where it is tried again later.
        """
        if not rows:
            return []
        refused = self._stage(rows)
        self._reject(refused)
        bad = {id(refusal.row) for refusal in refused}
        equal, differing = compare_staged(self._connection, self._entity, rows)
        again: list[DecodedRow] = []
        for number, row in enumerate(rows):
            if id(row) in bad:
                continue
            if number in equal:
                self._outcome.repeated.append(row.message)
            elif number in differing or id(row) in self._gone:
                self._outcome.rejects.append(
                    BadMessage(row.message, Reason.DIVERGENT, Explanation(Code.DIVERGENT))
                )
            else:
                self._gone.add(id(row))
                again.append(row)
        return again
