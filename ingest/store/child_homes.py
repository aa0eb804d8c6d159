"""Notes in a distributed installation which applications have versions of a child, in the
transaction of these versions. See docs/decisions/0028-cluster.md."""

import logging
from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import Final, NamedTuple

import psycopg

from history.base.error_text import describe
from history.daily.window import EPOCH, MICROSECONDS_PER_DAY
from history.distribution.inserting import insert
from ingest.store.batch import Row
from ingest.store.ledger import Connection
from ingest.store.missing_days import current

logger = logging.getLogger(__name__)

# Pairs of a child and an application that a writer remembers: some 20 MB.
REMEMBERED: Final = 100_000

_HOMES: Final = "INSERT INTO child_home (entity, id, product_instance_id, newest_day)"
_NEWEST: Final = """
ON CONFLICT (entity, id, product_instance_id) DO UPDATE
SET newest_day = excluded.newest_day WHERE child_home.newest_day < excluded.newest_day
"""
_OTHERS: Final = """
SELECT one.entity, one.id, one.product_instance_id, other.product_instance_id
FROM child_home one JOIN child_home other ON other.id = one.id AND other.entity = one.entity
    AND other.product_instance_id <> one.product_instance_id
WHERE one.id = ANY(%s)
"""
_MOVED: Final = "INSERT INTO child_moved (entity, id, product_instance_id, other_application)"


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
        # Children with an application that this writer noted first, perhaps not alone.
        self._unsure: set[str] = set()

    def note(self, connection: Connection, rows: Iterable[Row]) -> None:
        """Note the pairs of these stored rows, in a transaction. committed() follows."""
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
        days = {day: (EPOCH + timedelta(day)).isoformat() for day in set(self._new.values())}
        insert(connection, _HOMES, [(*pair, days[self._new[pair]]) for pair in pairs], _NEWEST)
        # A home that was noted before the oldest kept day has been removed, and its moves with it.
        oldest = (current().oldest - EPOCH).days
        _note_moved(connection, {pair.id for pair in pairs if self._noted.get(pair, -1) < oldest})

    def committed(self, connection: Connection) -> None:
        """Remember what was noted: its transaction is committed. Looks again for other
        applications: of two writers of the same child, the one that commits last sees both."""
        if len(self._noted) > REMEMBERED:
            self._noted.clear()
        self._unsure |= {pair.id for pair in self._new if pair not in self._noted}
        self._noted.update(self._new)
        self._new = {}
        try:
            _note_moved(connection, self._unsure)
        except psycopg.Error as error:
            # The batch is stored. The next one tries it again.
            logger.warning("not written, the next attempt follows: %s", describe(error))
        else:
            self._unsure.clear()


def _note_moved(connection: Connection, ids: Collection[str]) -> None:
    """Note those of these children that have versions in more than one application."""
    if not ids:
        return
    found = connection.execute(_OTHERS, [sorted(ids)]).fetchall()
    moved = sorted(tuple(map(str, row)) for row in found)
    insert(connection, _MOVED, moved, "ON CONFLICT DO NOTHING")
