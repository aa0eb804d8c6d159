"""Storing rows of which some may be repeats or poison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

from history.entities import Entity
from ingest import repeats
from ingest.batch import Reject, Row
from ingest.copy import copy, copy_halving
from ingest.decode import Reason
from ingest.ledger import Connection
from ingest.message import Message
from ingest.pack import columns


@dataclass(frozen=True, slots=True)
class Outcome:
    """Which rows were not stored: stored already, or not storable. All others are in the table."""

    repeated: list[Message]
    rejects: list[Reject]


def copy_rows(connection: Connection, entity: Entity, rows: Sequence[Row]) -> None:
    """All rows into their table, or an error and none."""
    copy(connection, sql.Identifier(entity.table), columns(entity), (row.packed for row in rows))


def store_carefully(connection: Connection, entity: Entity, rows: Sequence[Row]) -> Outcome:
    """Store what is new, name what is there already, what differs from it, and what is poison.

    Inside the caller's transaction. Two that store the same new row at once: the later one gets
    psycopg.errors.UniqueViolation.
    """
    split = repeats.split(connection, entity, rows)
    rejects = copy_halving(
        connection, lambda part: copy_rows(connection, entity, part), split.fresh
    )
    if not split.known:
        return Outcome([], rejects)
    repeats.make_stage(connection, entity)
    numbers = {id(row): number for number, row in enumerate(split.known)}
    poison = copy_halving(
        connection, lambda part: repeats.stage(connection, entity, numbers, part), split.known
    )
    refused = {id(reject.message) for reject in poison}
    differing = repeats.divergent(connection, entity, split.known)
    repeated = []
    rejects += poison
    for number, row in enumerate(split.known):
        if number in differing:
            detail = "the stored version of the same id, updatedAt and version differs"
            rejects.append(Reject(row.message, Reason.DIVERGENT, detail))
        elif id(row.message) not in refused:
            repeated.append(row.message)
    return Outcome(repeated, rejects)
