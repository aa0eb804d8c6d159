"""Notes in a distributed installation which applications have versions of a child, in the
transaction of these versions. See docs/decisions/0064-distribution-by-application.md."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import Final, NamedTuple

import msgspec

from history.window import EPOCH, MICROSECONDS_PER_DAY
from ingest.store.batch import Row
from ingest.store.ledger import Connection

# Pairs of a child and an application that a writer remembers: some 20 MB.
REMEMBERED: Final = 100_000

_COLUMN: Final = "json_array_elements_text(%s::json)"
_HOMES: Final = f"""
INSERT INTO child_home (entity, id, product_instance_id, newest_day)
SELECT entity, id, application, day::date
FROM ROWS FROM ({", ".join([_COLUMN] * 4)}) AS u(entity, id, application, day)
ON CONFLICT (entity, id, product_instance_id) DO UPDATE
SET newest_day = excluded.newest_day WHERE child_home.newest_day < excluded.newest_day
"""  # noqa: S608 - constants
_OTHERS: Final = """
SELECT one.entity, one.id, one.product_instance_id, other.product_instance_id
FROM child_home one JOIN child_home other ON other.id = one.id AND other.entity = one.entity
    AND other.product_instance_id <> one.product_instance_id
WHERE one.id = ANY(%s)
"""
_MOVED: Final = f"""
INSERT INTO child_moved (entity, id, product_instance_id, other_application)
SELECT entity, id, application, other
FROM ROWS FROM ({", ".join([_COLUMN] * 4)}) AS u(entity, id, application, other)
ON CONFLICT DO NOTHING
"""  # noqa: S608 - constants


class Pair(NamedTuple):
    """A child and an application that has versions of it."""

    entity: str
    id: str
    application: str


class Homes:
    """Those of one writer, which remembers what it has noted already."""

    def __init__(self) -> None:
        self._noted: dict[Pair, int] = {}
        self._new: dict[Pair, int] = {}

    def note(self, connection: Connection, rows: Iterable[Row]) -> None:
        """Note the pairs of these rows, which are stored, in the caller's transaction. kept() says
        afterwards that it was committed."""
        self._new = {}
        for row in rows:
            record = row.record
            if record.product_instance_id is None:
                continue
            pair = Pair(record.entity, record.id, record.product_instance_id)
            day = record.updated_at // MICROSECONDS_PER_DAY
            if day > max(self._noted.get(pair, day - 1), self._new.get(pair, day - 1)):
                self._new[pair] = day
        if not self._new:
            return
        # Sorted, so that two writers of the same pairs do not deadlock.
        pairs = sorted(self._new)
        days = [(EPOCH + timedelta(self._new[pair])).isoformat() for pair in pairs]
        connection.execute(_HOMES, [*_columns(pairs), _json(days)])
        unknown = {pair.id for pair in pairs if pair not in self._noted}
        if unknown:
            moved = connection.execute(_OTHERS, [sorted(unknown)]).fetchall()
            if moved:
                connection.execute(_MOVED, _columns(sorted(moved)))

    def kept(self) -> None:
        """Remember what was noted: its transaction is committed."""
        if len(self._noted) > REMEMBERED:
            self._noted.clear()
        self._noted.update(self._new)
        self._new = {}


def _columns(rows: Collection[tuple[object, ...]]) -> list[str]:
    return [_json(column) for column in zip(*rows, strict=True)]


def _json(column: Collection[object]) -> str:
    return msgspec.json.encode(column).decode()
