"""Checks whether sealed days are unchanged and whether the chain of their seals is complete."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

import msgspec
import psycopg

from history import days
from history.canonical import Connection, Digest, Range, digest
from history.days import State
from history.entities import Entity
from history.models import ArchivedDay, DaySeal
from history.seals.seal import GENESIS, chained


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of checking one day. fault: what is wrong, None if nothing is. note: what was
    compared."""

    table: str
    day: date
    rows: int
    seal: str
    fault: str | None
    note: str


def chain_fault(entity: Entity) -> str | None:
    """The first fault in the chain of an entity's seals, in the order of sealing; None if whole."""
    previous = GENESIS
    for found in DaySeal.objects.filter(table=entity.table).defer("ranges").order_by("id"):
        if found.previous != previous:
            return f"the seal before the seal of {found.day} is missing or was replaced"
        if found.seal != chained(previous, found.table, found.day, found.rows, found.digest):
            return f"the seal of {found.day} does not match its row count and digest"
        previous = found.seal
    return None


def newest_seal(entity: Entity) -> str:
    """The newest seal of a table, in hex, which depends on all earlier ones; GENESIS if none."""
    last = DaySeal.objects.filter(table=entity.table).order_by("-id").first()
    return last.seal if last else GENESIS


def verify(connection: Connection, entity: Entity, day: date | None = None) -> Iterator[Verdict]:
    """Check each sealed day, or one, against its newest seal, oldest day first.

    The digest of an attached day is computed again from its rows. The seal of a day that is no
    longer in the table is compared with the digest that the database keeps of the archived day.
    A day that cannot be read has that as its fault; a lost connection is raised.
    """
    seals = DaySeal.objects.filter(table=entity.table)
    if day is not None:
        seals = seals.filter(day=day)
    newest = seals.order_by("day", "-id").distinct("day")
    for known in newest.iterator(chunk_size=1):
        try:
            fault, note = _compare(connection, entity, known)
        except psycopg.Error as error:
            if connection.closed:
                raise
            # The first line only: PostgreSQL's further lines can quote a row.
            fault, note = f"cannot be read: {str(error).partition(chr(10))[0]}", "not compared"
        yield Verdict(known.table, known.day, known.rows, known.seal, fault, note)


def _compare(connection: Connection, entity: Entity, known: DaySeal) -> tuple[str | None, str]:
    place = days.locate(connection, entity.table, known.day)
    if place.state is State.ABSENT:
        kept = ArchivedDay.objects.filter(table=known.table, day=known.day).first()
        if kept is None:
            return None, "dropped, not archived"
        if kept.digest != known.digest:
            return "the archived rows are not the sealed rows", "archived"
        return None, "archived; the digests are equal"
    found = digest(connection, entity, place.child)
    whole = found.finish()
    ranges = msgspec.convert(known.ranges, list[Range])
    if whole == known.digest and found.rows == known.rows:
        return None, "digest computed from the rows"
    return _difference(ranges, found, known), "digest computed from the rows"


def _difference(sealed: list[Range], found: Digest, known: DaySeal) -> str:
    """The first range of rows that differs from the sealed one."""
    change = found.rows - known.rows
    count = f", {abs(change)} rows {'more' if change > 0 else 'fewer'}" if change else ""
    begin = 0
    for old, new in zip(sealed, found.ranges, strict=False):
        if old != new:
            return (
                f"rows {begin + 1} to {begin + old.rows} differ, between {_key(old.first)} and"
                f" {_key(old.last)}{count}"
            )
        begin += old.rows
    if len(sealed) < len(found.ranges):
        first = _key(found.ranges[len(sealed)].first)
        return f"rows after row {begin} are new, from {first}{count}"
    if len(sealed) > len(found.ranges):
        first = _key(sealed[len(found.ranges)].first)
        return f"rows from row {begin + 1} on are missing, from {first}{count}"
    return f"the ranges of the seal do not match its digest{count}"


def _key(place: tuple[str, int]) -> str:
    return f"{place[0]} v{place[1]}"
