"""Stores rows some of which are stored already, or cannot be stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from psycopg import errors

from history import distribution
from history.entities import Entity
from history.search_index.keys import NewKeys
from ingest.source.decode import Reason
from ingest.source.message import Message
from ingest.store import deduplicate
from ingest.store.batch import Reject, Row
from ingest.store.copy import Refused, halve, reject
from ingest.store.fast_path import copy_rows
from ingest.store.ledger import Connection
from ingest.store.search_index import index

_DIVERGENT = (
    "another content is stored for the same `id`, `updatedAt` and `version`; a changed document"
    " needs a new `version`"
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Which rows were not stored: stored already, or not storable. All others are in the table."""

    repeated: list[Message] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)


def store_deduplicated(connection: Connection, entity: Entity, rows: Sequence[Row]) -> Outcome:
    """Store new rows, without their search keys. Returns the rows that were stored before, that
    differ from the stored row, and that are at fault.

    Inside the caller's transaction. If two writers store the same new row at once, the later one
    gets psycopg.errors.UniqueViolation.
    """
    return _Slowly(connection, entity, isolate=False).store(rows)


def store_isolated(connection: Connection, entity: Entity, rows: Sequence[Row]) -> Outcome:
    """The same with the search keys of the rows, so that a row whose keys cannot be stored is
    found too. Rows that another writer stores at this moment are repeats; nothing is raised for
    them. Slower than store_deduplicated() only where rows are at fault.
    """
    return _Slowly(connection, entity, isolate=True).store(rows)


class _Slowly:
    """One call of store_deduplicated() or store_isolated()."""

    def __init__(self, connection: Connection, entity: Entity, isolate: bool) -> None:
        self._connection = connection
        self._entity = entity
        self._isolate = isolate
        self._outcome = Outcome()
        self._known: list[Row] = []
        # By id(): rows that violated a unique constraint although their key was not stored.
        self._conflicted: set[int] = set()

    def store(self, rows: Sequence[Row]) -> Outcome:
        waiting = list(rows)
        while waiting:
            waiting = self._round(waiting)
        if self._known:
            self._compare(self._known)
        return self._outcome

    def _round(self, rows: Sequence[Row]) -> list[Row]:
        """Store the first row of each new key. Returns the rows to look at again: those with the
        key of a row that was refused may be good."""
        split = deduplicate.split(self._connection, self._entity, rows)
        refused = halve(self._connection, self._copy, split.fresh, conflicts=self._isolate)
        parted = distribution.active(self._connection)
        missing = {deduplicate.key(each.row, parted) for each in refused}
        again = [each.row for each in refused if self._is_new_conflict(each)]
        retried = {id(row) for row in again}
        self._reject(each for each in refused if id(each.row) not in retried)
        if not missing:
            self._known += split.known
            return []
        same_key: list[Row] = []
        for row in split.known:
            (same_key if deduplicate.key(row, parted) in missing else self._known).append(row)
        return again + self._storable(same_key)

    def _is_new_conflict(self, refused: Refused) -> bool:
        """Whether another writer may have stored the row since it was looked up."""
        row = id(refused.row)
        if not isinstance(refused.error, errors.UniqueViolation) or row in self._conflicted:
            return False
        self._conflicted.add(row)
        return True

    def _copy(self, rows: Sequence[Row]) -> None:
        copy_rows(self._connection, self._entity, rows)
        if self._isolate:
            keys = NewKeys()
            for row in rows:
                keys.add(row.record)
            index(self._connection, keys.rows())

    def _storable(self, rows: Sequence[Row]) -> list[Row]:
        """The rows that the types of the columns take; the others are rejected. Tried in the
        staging table, where all rows of one key have room: thousands of equal bad rows are found at
        once."""
        if not rows:
            return []
        with self._connection.transaction(force_rollback=True):
            refused = self._stage(rows)
        self._reject(refused)
        bad = {id(each.row) for each in refused}
        return [row for row in rows if id(row) not in bad]

    def _stage(self, rows: Sequence[Row]) -> list[Refused]:
        deduplicate.make_stage(self._connection, self._entity)
        numbers = {id(row): number for number, row in enumerate(rows)}

        def attempt(part: Sequence[Row]) -> None:
            deduplicate.stage(self._connection, self._entity, numbers, part)

        return halve(self._connection, attempt, rows)

    def _reject(self, refused: Iterable[Refused]) -> None:
        self._outcome.rejects.extend(reject(each) for each in refused)

    def _compare(self, rows: Sequence[Row]) -> None:
        """Separate rows that equal the stored row with their key from rows that differ from it."""
        refused = self._stage(rows)
        self._reject(refused)
        bad = {id(each.row) for each in refused}
        differing = deduplicate.divergent(self._connection, self._entity, rows)
        for number, row in enumerate(rows):
            if number in differing:
                self._outcome.rejects.append(Reject(row.message, Reason.DIVERGENT, _DIVERGENT))
            elif id(row) not in bad:
                self._outcome.repeated.append(row.message)
