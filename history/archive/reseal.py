"""Seals follow the archive: the newest seal of an archived day is that of its archived rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from history import days
from history.archive import manifest
from history.archive.manifest import Manifest
from history.archive.parquet import row_hash
from history.archive.store import Store
from history.canonical import Connection, Digest
from history.entities import Entity
from history.models import ArchivedDay, DaySeal
from history.seals import late
from history.seals.seal import add


@dataclass(frozen=True, slots=True)
class Before:
    """What is known of a day before it is archived. late: the late rows. archived: the digest of
    the rows that are in the archive already; None if there are none."""

    late: int
    archived: str | None


def before(connection: Connection, table: str, day: date) -> Before:
    """To be called before a day is archived."""
    archived = ArchivedDay.objects.filter(table=table, day=day).first()
    return Before(late.count(connection, table, day), archived.digest if archived else None)


def follow(
    connection: Connection, store: Store, entity: Entity, earlier: Before, done: Manifest
) -> None:
    """Seal the archived rows of a day if they are the sealed rows and rows that came late.

    Does nothing if the day has no seal or no late row, or if its rows cannot be accounted for: then
    `verify` reports the day. To be called after the day is archived and before the database says
    so, with the lock of maintain's runs; after an interruption the next call does the rest.
    """
    table, day = entity.table, done.day
    newest = DaySeal.objects.filter(table=table, day=day).order_by("-id").first()
    if newest is None:
        return
    with late.one_snapshot(connection):
        count = late.count(connection, table, day)
        if not count or count != earlier.late:  # a row that came meanwhile waits for the next run
            return
        found = late.digests(connection, entity, day, days.locate(connection, table, day).child)
        rows, rest = found.rows.finish(), found.rest.finish()
        whole = rest == newest.digest and rows == done.digest
        returned = not found.rest.rows and earlier.archived == newest.digest
        if found.late != count or not (whole or returned):
            return
        if done.digest != newest.digest:
            add(connection, table, day, found.rows if whole else _read(store, done))
        late.include(connection, table, day)


def _read(store: Store, done: Manifest) -> Digest:
    """The digest of the archived rows, with its ranges."""
    digest = Digest()
    for row in manifest.rows(store, done):
        digest.add(row[0], row[1], row_hash(row))
    return digest
