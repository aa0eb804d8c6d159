"""Whether sealed days are still what they were, and whether the chain of their seals holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

import msgspec

from history import days
from history.canonical import Connection, Digest, Range, digest
from history.days import State
from history.entities import Entity
from history.models import ArchivedDay, DaySeal
from history.seals.seal import GENESIS, chained


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found of one day. fault: what is wrong, None where nothing is. note: how far the
    check went."""

    table: str
    day: date
    rows: int
    seal: str
    fault: str | None
    note: str


def chain(entity: Entity) -> str | None:
    """What is wrong with the chain of an entity's seals, in the order of sealing; None: nothing."""
    previous = GENESIS
    for found in DaySeal.objects.filter(table=entity.table).defer("ranges").order_by("id"):
        if found.previous != previous:
            return f"the seal before that of {found.day} is missing or another"
        if found.seal != chained(previous, found.table, found.day, found.rows, found.digest):
            return f"the seal of {found.day} does not fit what it says of that day"
        previous = found.seal
    return None


def head(entity: Entity) -> str:
    """The newest seal: it vouches for all the days before it. Zeros where there is none."""
    last = DaySeal.objects.filter(table=entity.table).order_by("-id").first()
    return last.seal if last else GENESIS


def verify(connection: Connection, entity: Entity, day: date | None = None) -> Iterator[Verdict]:
    """Compute the digest of each sealed day anew, or of one, by its newest seal, oldest first.

    A day that has left the table is compared with the manifest of the archive.
    """
    seals = DaySeal.objects.filter(table=entity.table)
    if day is not None:
        seals = seals.filter(day=day)
    newest = seals.order_by("day", "-id").distinct("day")
    for known in newest.iterator(chunk_size=1):
        fault, note = _compare(connection, entity, known)
        yield Verdict(known.table, known.day, known.rows, known.seal, fault, note)


def _compare(connection: Connection, entity: Entity, known: DaySeal) -> tuple[str | None, str]:
    place = days.locate(connection, entity.table, known.day)
    if place.state is State.ABSENT:
        kept = ArchivedDay.objects.filter(table=known.table, day=known.day).first()
        if kept is None:
            return None, "dropped, not archived"
        if kept.digest != known.digest:
            return "the rows in the archive are not those that were sealed", "archived"
        return None, "archived with the sealed digest"
    found = digest(connection, entity, place.child)
    whole = found.finish()
    ranges = msgspec.convert(known.ranges, list[Range])
    if whole == known.digest and found.rows == known.rows:
        return None, "rows read again"
    return _difference(ranges, found, known), "rows read again"


def _difference(sealed: list[Range], found: Digest, known: DaySeal) -> str:
    """The first range of rows that is not as it was sealed."""
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
        return f"rows after {begin} are new, from {_key(found.ranges[len(sealed)].first)}{count}"
    if len(sealed) > len(found.ranges):
        return (
            f"rows from {begin + 1} are gone, from {_key(sealed[len(found.ranges)].first)}{count}"
        )
    return f"the seal's own ranges do not fit its digest{count}"


def _key(place: tuple[str, int]) -> str:
    return f"{place[0]} v{place[1]}"
