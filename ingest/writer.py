"""One batch into the database in one transaction. The only place that uses COPY.

The straight way is COPY into the partitioned tables. A batch that hits a conflict or a row that
PostgreSQL cannot store is rolled back and goes the careful way: repeats are looked up first, bad
rows found by halving.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import psycopg
from psycopg import errors, sql

from history import days
from history.entities import BY_NAME, Entity
from history.window import day_of
from ingest import ledger, quarantine
from ingest.batch import Batch, Reject, Row
from ingest.decode import Reason
from ingest.ledger import Advance, Claim, Connection
from ingest.message import Message, TopicPartition
from ingest.pack import HEADER, TRAILER, columns, numbered

T = TypeVar("T")

CHUNK_BYTES = 256 * 1024
# After a conflict, so many batches go the careful way at once.
WARY_BATCHES = 20

# What a row itself can be guilty of; everything else is the database's state.
POISON = (psycopg.DataError, errors.ProgramLimitExceeded, errors.StatementTooComplex)
Poison = psycopg.DataError | errors.ProgramLimitExceeded | errors.StatementTooComplex


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a batch. rejects: those found by the database, besides the batch's own."""

    stored: Mapping[TopicPartition, int]
    repeated: Mapping[TopicPartition, int]
    rejects: tuple[Reject, ...] = ()


@dataclass(slots=True)
class _Result:
    repeated: list[Message] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)


class Writer:
    """Writes batches through one connection, which it opens itself. Not for several threads."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._open: Connection | None = None
        self._wary: Counter[str] = Counter()

    @property
    def connection(self) -> Connection:
        """The open connection, opened anew where there is none."""
        if self._open is None:
            self._open = self._connect()
        return self._open

    def close(self) -> None:
        """Drop the connection; the next use opens another."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def write(
        self,
        batch: Batch,
        claims: Mapping[TopicPartition, Claim],
        high: Mapping[TopicPartition, int],
    ) -> Written:
        """Store a batch: rows, rejects and the ledger together or not at all.

        high: each partition's newest offset at the broker. Raises ledger.Fenced where a partition
        is no longer ours, and psycopg.Error when the database cannot serve now; the batch may
        then be given again.
        """
        try:
            return self._transaction(batch, claims, high, careful=False)
        except (errors.UniqueViolation, *POISON):
            for name in batch.rows:
                self._wary[name] = WARY_BATCHES
            return self._transaction(batch, claims, high, careful=True)

    def _transaction(
        self,
        batch: Batch,
        claims: Mapping[TopicPartition, Claim],
        high: Mapping[TopicPartition, int],
        careful: bool,
    ) -> Written:
        result = _Result()
        connection = self.connection
        try:
            with connection.transaction():
                for name in batch.entities():
                    entity = BY_NAME[name]
                    if careful or self._wary[name] > 0:
                        self._store_carefully(connection, entity, batch.rows[name], result)
                    else:
                        _copy(connection, entity, (row.packed for row in batch.rows[name]))
                quarantine.add(connection, [*batch.rejects, *result.rejects], claims)
                written = _count(batch, result)
                ledger.advance(connection, _moves(batch, claims, high, written))
        except errors.CheckViolation:
            if not self._make_days(batch):
                raise
            return self._transaction(batch, claims, high, careful)
        return written

    def _store_carefully(
        self, connection: Connection, entity: Entity, rows: list[Row], result: _Result
    ) -> None:
        """Store what is new, count what is there already, name what differs or is poison."""
        fresh, known = _split(connection, entity, rows)
        self._wary[entity.name] = WARY_BATCHES if known else self._wary[entity.name] - 1
        _copy_halving(
            connection, lambda part: _copy(connection, entity, _packed(part)), fresh, result
        )
        if not known:
            return
        connection.execute(
            sql.SQL(
                "CREATE TEMP TABLE IF NOT EXISTS {stage} (n integer, LIKE {table}) "
                "ON COMMIT DELETE ROWS"
            ).format(stage=_stage(entity), table=sql.Identifier(entity.table))
        )
        staged = dict(enumerate(known))

        def stage(part: list[tuple[int, Row]]) -> None:
            packed = (numbered(number, row.packed) for number, row in part)
            _copy_into(connection, _stage(entity), ("n", *columns(entity)), packed)

        _copy_halving(connection, stage, list(staged.items()), result, lambda pair: pair[1])
        numbers = {int(n) for (n,) in connection.execute(_divergent(entity))}  # type: ignore[call-overload]
        refused = {id(reject.message) for reject in result.rejects}
        for number, row in staged.items():
            if number in numbers:
                detail = "the stored version of the same id, updatedAt and version differs"
                result.rejects.append(Reject(row.message, Reason.DIVERGENT, detail))
            elif id(row.message) not in refused:
                result.repeated.append(row.message)

    def _make_days(self, batch: Batch) -> bool:
        """Make the partitions that a batch misses. False: none was missing."""
        made = [
            days.create(self.connection, BY_NAME[name].table, day)
            for name, rows in batch.rows.items()
            for day in sorted({day_of(row.record.updated_at) for row in rows})
        ]
        return any(made)


def _moves(
    batch: Batch,
    claims: Mapping[TopicPartition, Claim],
    high: Mapping[TopicPartition, int],
    written: Written,
) -> list[Advance]:
    moves = []
    for source in sorted(batch.progress):
        progress = batch.progress[source]
        stored, repeated = written.stored.get(source, 0), written.repeated.get(source, 0)
        moves.append(
            Advance(
                claim=claims[source],
                start=progress.start,
                next=progress.next,
                read=progress.read,
                stored=stored,
                repeated=repeated,
                expired=progress.expired,
                quarantined=progress.read - progress.expired - stored - repeated,
                newest_timestamp=progress.newest_timestamp,
                high_watermark=high.get(source, 0),
                gaps=progress.gaps,
            )
        )
    return moves


def _count(batch: Batch, result: _Result) -> Written:
    stored = by_source(batch, (row.message for rows in batch.rows.values() for row in rows))
    repeated = by_source(batch, result.repeated)
    stored.subtract(repeated)
    stored.subtract(by_source(batch, (reject.message for reject in result.rejects)))
    return Written(stored, repeated, tuple(result.rejects))


def by_source(batch: Batch, messages: Iterable[Message]) -> Counter[TopicPartition]:
    """How many of the messages came from each partition of the batch."""
    sources = {(source.topic, source.partition): source for source in batch.progress}
    return Counter(sources[message.topic, message.partition] for message in messages)


def _copy(connection: Connection, entity: Entity, packed: Iterable[bytes]) -> None:
    _copy_into(connection, sql.Identifier(entity.table), columns(entity), packed)


def _copy_into(
    connection: Connection, table: sql.Composable, names: tuple[str, ...], packed: Iterable[bytes]
) -> None:
    """COPY packed rows, in pieces large enough to be cheap and small enough to flow."""
    statement = sql.SQL("COPY {table} ({names}) FROM STDIN (FORMAT binary)").format(
        table=table, names=sql.SQL(", ").join(map(sql.Identifier, names))
    )
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        pieces, size = [HEADER], 0
        for row in packed:
            pieces.append(row)
            size += len(row)
            if size >= CHUNK_BYTES:
                copy.write(b"".join(pieces))
                pieces, size = [], 0
        copy.write(b"".join((*pieces, TRAILER)))


def _packed(rows: Iterable[Row]) -> Iterable[bytes]:
    return (row.packed for row in rows)


def _copy_halving(
    connection: Connection,
    copy: Callable[[list[T]], None],
    rows: list[T],
    result: _Result,
    row_of: Callable[[T], Row] = lambda row: row,
) -> None:
    """Copy all rows but those that PostgreSQL cannot store; these become rejects."""
    if not rows:
        return
    try:
        with connection.transaction():
            copy(rows)
    except POISON as error:
        if len(rows) == 1:
            result.rejects.append(_poison(row_of(rows[0]), error))
            return
        middle = len(rows) // 2
        _copy_halving(connection, copy, rows[:middle], result, row_of)
        _copy_halving(connection, copy, rows[middle:], result, row_of)


def _poison(row: Row, error: Poison) -> Reject:
    reason, detail = Reason.NOT_STORABLE, "PostgreSQL cannot store the snapshot"
    if isinstance(error, (errors.UntranslatableCharacter, errors.CharacterNotInRepertoire)):
        reason, detail = Reason.BAD_TEXT, "a character that PostgreSQL cannot store, such as NUL"
    elif isinstance(error, errors.InvalidTextRepresentation):
        reason, detail = Reason.BAD_TEXT, "text that is no Unicode, such as a lone surrogate"
    elif isinstance(error, errors.NumericValueOutOfRange):
        reason, detail = Reason.BAD_NUMBER, "a number beyond what PostgreSQL can store"
    return Reject(row.message, reason, f"{detail} (SQLSTATE {error.sqlstate})")


_Key = tuple[str, int, int]


def _key(row: Row) -> _Key:
    record = row.record
    return record.id, record.updated_at, record.version


def _split(connection: Connection, entity: Entity, rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """Rows whose key is new, and those whose key is stored already or came earlier in the batch."""
    firsts: dict[_Key, Row] = {}
    later = [row for row in rows if firsts.setdefault(_key(row), row) is not row]
    candidates = list(firsts.values())
    moments = [row.record.updated_at for row in candidates]
    found = connection.execute(
        sql.SQL(
            """
            SELECT k.n FROM (
                SELECT n, id, version,
                    'epoch'::timestamptz + moment * interval '1 microsecond' AS at
                FROM unnest(%s::int[], %s::text[], %s::bigint[], %s::int[])
                    AS u(n, id, moment, version)
            ) k JOIN {table} t ON t.id = k.id AND t.updated_at = k.at AND t.version = k.version
            WHERE t.updated_at BETWEEN
                'epoch'::timestamptz + %s::bigint * interval '1 microsecond'
                AND 'epoch'::timestamptz + %s::bigint * interval '1 microsecond'
            """
        ).format(table=sql.Identifier(entity.table)),
        (
            list(range(len(candidates))),
            [row.record.id for row in candidates],
            moments,
            [row.record.version for row in candidates],
            min(moments),
            max(moments),
        ),
        prepare=False,
    ).fetchall()
    stored = {int(n) for (n,) in found}  # type: ignore[call-overload]
    fresh = [row for number, row in enumerate(candidates) if number not in stored]
    known = [row for number, row in enumerate(candidates) if number in stored]
    return fresh, known + later


def _stage(entity: Entity) -> sql.Identifier:
    return sql.Identifier("pg_temp", f"stage_{entity.table}")


def _divergent(entity: Entity) -> sql.Composed:
    """Numbers of staged rows whose stored twin holds something else."""
    compared = [name for name in columns(entity) if name not in ("id", "updated_at", "version")]

    def row_of(alias: str) -> sql.Composed:
        names = sql.SQL(", ").join(sql.Identifier(alias, name) for name in compared)
        return sql.SQL("({})").format(names)

    return sql.SQL(
        "SELECT s.n FROM {stage} s JOIN {table} t USING (id, updated_at, version)"
        " WHERE {stored} IS DISTINCT FROM {given}"
    ).format(
        stage=_stage(entity),
        table=sql.Identifier(entity.table),
        stored=row_of("t"),
        given=row_of("s"),
    )
