"""Storing rows of which some may be repeats or poison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

from history.entities import Entity
from ingest.source.decode import Reason
from ingest.source.message import Message
from ingest.store import deduplicate
from ingest.store.batch import Reject, Row
from ingest.store.copy import copy, copy_halving
from ingest.store.copy_format import columns, pack
from ingest.store.ledger import Connection


@dataclass(frozen=True, slots=True)
class Outcome:
    """Which rows were not stored: stored already, or not storable. All others are in the table."""

    repeated: list[Message]
    rejects: list[Reject]


def copy_rows(connection: Connection, entity: Entity, rows: Sequence[Row]) -> None:
    """All rows into their table, or an error and none."""
    packed = (pack(row.record) for row in rows)
    copy(connection, sql.Identifier(entity.table), columns(entity), packed)


def store_deduplicated(connection: Connection, entity: Entity, rows: Sequence[Row]) -> Outcome:
    """Store new rows. Returns the rows that were stored before, that differ from the stored
    row, and that are poison.

    Inside the caller's transaction. If two writers store the same new row at once, the later one
    gets psycopg.errors.UniqueViolation.
    """
    split = deduplicate.split(connection, entity, rows)
    rejects = copy_halving(
        connection, lambda part: copy_rows(connection, entity, part), split.fresh
    )
    known, again = split.known, list[Row]()
    if rejects:
        # A repeat of a row that was refused repeats no stored row: it may be good.
        refused = {id(reject.message) for reject in rejects}
        missing = {deduplicate.key(row) for row in split.fresh if id(row.message) in refused}
        again = [row for row in known if deduplicate.key(row) in missing]
        known = [row for row in known if deduplicate.key(row) not in missing]
    outcomes = [Outcome([], rejects)]
    if known:
        outcomes.append(_compare(connection, entity, known))
    if again:
        outcomes.append(store_deduplicated(connection, entity, again))
    return Outcome(
        [message for each in outcomes for message in each.repeated],
        [reject for each in outcomes for reject in each.rejects],
    )


def _compare(connection: Connection, entity: Entity, rows: Sequence[Row]) -> Outcome:
    """Separate rows that equal the stored row with their key from rows that differ from it."""
    deduplicate.make_stage(connection, entity)
    numbers = {id(row): number for number, row in enumerate(rows)}
    rejects = copy_halving(
        connection, lambda part: deduplicate.stage(connection, entity, numbers, part), rows
    )
    refused = {id(reject.message) for reject in rejects}
    differing = deduplicate.divergent(connection, entity, rows)
    repeated = []
    for number, row in enumerate(rows):
        if number in differing:
            detail = "the stored version of the same id, updatedAt and version differs"
            rejects.append(Reject(row.message, Reason.DIVERGENT, detail))
        elif id(row.message) not in refused:
            repeated.append(row.message)
    return Outcome(repeated, rejects)
