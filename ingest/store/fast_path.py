"""Stores rows by one COPY into the table of their entity: all of them, or none."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from psycopg import sql

from history.entities import Entity
from ingest.store import late_rows
from ingest.store.batch import Row
from ingest.store.copy import copy
from ingest.store.copy_format import columns, encode_rows
from ingest.store.ledger import Connection

_RECORD = attrgetter("record")


def copy_rows(connection: Connection, entity: Entity, rows: Sequence[Row]) -> None:
    """Store all rows, or raise an error and store none. Those of sealed days are noted."""
    chunks = encode_rows(map(_RECORD, rows))
    copy(connection, sql.Identifier(entity.table), columns(entity), chunks)
    late_rows.note(connection, entity, rows)
