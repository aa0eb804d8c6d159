"""Which version a version is compared with, and which versions between them are missing."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import takewhile
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from history.entities import Entity
from history.timeline import budget
from history.timeline.query import storable, unknown
from history.timeline.reading import Reader
from history.timeline.row import LAST, Documents, IdKey, Key, Keys, Pair, VersionRow


def previous_in_page(page: Collection[VersionRow]) -> dict[Key, VersionRow]:
    """The previous versions that a page proves by itself; the page must have no gaps in its order.

    The latest version N-1 that is not younger than N must be the right one: every other candidate
    would be between the two, and nothing between them was left out.
    """
    by_version: dict[int, list[VersionRow]] = {}
    for row in page:
        by_version.setdefault(row.version, []).append(row)
    found: dict[Key, VersionRow] = {}
    for row in page:
        older = [
            other
            for other in by_version.get(row.version - 1, ())
            if other.updated_at <= row.updated_at
        ]
        if older:
            found[row.key] = max(older, key=_moment)
    return found


def _moment(row: VersionRow) -> datetime:
    return row.updated_at


def pair_up(
    reader: Reader,
    entity: Entity,
    id: str,
    shown: Sequence[VersionRow],
    around: Sequence[VersionRow],
    *,
    gapless: bool,
    whole: bool,
) -> list[Pair]:
    """The shown rows of one entity, each with its previous version; fewer from the first row on
    where the previous versions are too large to read at once. At most two queries.

    around: the shown rows and others that were read with them, in display order. gapless: nothing
    was left out between them. whole: they are all that the store has of the entity.
    """
    proven = previous_in_page(around) if gapless else {}
    rest = [row.key for row in shown if row.version > 0 and row.key not in proven]
    known = [row.key for row in around]
    if rest and not whole:
        known = reader.keys(entity, [id]).get(id, [])
    keys = Keys(known)
    wanted = {key: keys.previous(key) for key in rest}
    found = {row.key: row for row in around}
    unread = [key for key in dict.fromkeys(wanted.values()) if key is not None and key not in found]
    read, left = reader.documents({entity: [(id, key) for key in unread]})[entity]
    found.update((key, row) for (_, key), row in read.items())
    before = proven | {key: found[low] for key, low in wanted.items() if low in found}
    late = {key for _, key in left}
    ready = takewhile(lambda row: wanted.get(row.key) not in late, shown)
    return [Pair(entity, row, before.get(row.key), keys.trusted) for row in ready]


def fetch(
    reader: Reader,
    entity: Entity,
    wanted: Sequence[IdKey],
    known: Mapping[str, Keys],
    read: Mapping[IdKey, VersionRow] = MappingProxyType({}),
) -> list[Pair]:
    """The versions of one kind with these ids and keys, each with its previous version; `known`
    has all keys of those ids, `read` what was read before. One query, more if they are large; none
    if all was read. What retention has just removed is left out."""
    found: list[Pair] = []
    left = wanted
    while left:
        lacking = [place for place in needed(left, known) if place not in read]
        rows, unread = reader.documents({entity: lacking})[entity] if lacking else ({}, [])
        pairs, left = first_pairs(reader, entity, left, known, Documents({**read, **rows}, unread))
        found += pairs
    return found


def first_pairs(
    reader: Reader,
    entity: Entity,
    wanted: Sequence[IdKey],
    known: Mapping[str, Keys],
    documents: Documents,
) -> tuple[list[Pair], Sequence[IdKey]]:
    """The first of them as in fetch, as many as these documents of `needed` allow, and the
    others."""
    lower = _lower(wanted, known)
    read, late = dict(documents.rows), set(documents.unread)
    pairs: list[Pair] = []
    for number, place in enumerate(wanted):
        id, low = place[0], lower[place]
        below = None if low is None else (id, low)
        if place in late or below in late:
            if number:
                return pairs, wanted[number:]
            # The two are too large to be read at once; one alone never is.
            read |= reader.bodies(entity, [place] if below is None else [place, below])
        if place in read:
            before = None if below is None else read.get(below)
            pairs.append(Pair(entity, read[place], before, known[id].trusted))
    return pairs, ()


def needed(wanted: Sequence[IdKey], known: Mapping[str, Keys]) -> list[IdKey]:
    """The versions that the pairs of these consist of."""
    lower = _lower(wanted, known)
    found: dict[IdKey, None] = {}
    for id, key in wanted:
        low = lower[id, key]
        found |= dict.fromkeys([(id, key)] if low is None else [(id, key), (id, low)])
    return list(found)


def _lower(wanted: Sequence[IdKey], known: Mapping[str, Keys]) -> dict[IdKey, Key | None]:
    return {place: known[place[0]].previous(place[1]) for place in wanted}


def lowest(
    reader: Reader, entity: Entity, known: Mapping[str, Keys], read: Mapping[IdKey, VersionRow]
) -> Iterator[VersionRow]:
    """The lowest stored version of each of these entities, by id; `read` has those read before.
    No query if these are all, else one, more if they are large. What retention has just removed is
    left out."""
    wanted = sorted((id, keys.lowest) for id, keys in known.items() if keys.lowest is not None)
    lacking = [place for place in wanted if place not in read]
    found = {**read, **reader.bodies(entity, lacking)}
    yield from (found[place] for place in wanted if place in found)


class Known(NamedTuple):
    """All keys of one entity, and those of its versions that came with them."""

    keys: Keys
    rows: Mapping[IdKey, VersionRow]


def known(reader: Reader, entity: Entity, id: str, below: Sequence[Key], count: int) -> Known:
    """An entity with its highest versions up to each of these numbers and moments, this many of
    each. The old service is asked too. One query. Raises NoVersionError where there is nothing of
    it."""
    if storable(id):
        reader.old.want(entity, id)
        keys, rows = reader.newest(entity, id, below, count)
        if keys:
            return Known(Keys(keys), rows)
    raise unknown(entity.name, id)


# Given all keys and the last one that was read: the key at which to go on; None for the next one.
Skip: TypeAlias = Callable[[Keys, Key], Key | None]


def descending(
    reader: Reader, entity: Entity, id: str, start: Key | None = None, skip: Skip | None = None
) -> Iterator[Pair]:
    """The versions from the highest number (or from `start`) down; each is the one that the pair
    before it was compared with. A twin that no version is compared with is not among them.

    `start` itself comes first; if the store no longer has it, the next lower key does. One query
    for all keys and the first BATCH versions, one for every BATCH of the others, or READ_BYTES:
    linear in their number. skip: is asked after each of these, from the first pair on; the pair
    after the versions that it leaves out begins at its key. Raises NoVersionError where there is
    nothing of the entity.
    """
    keys, rows = known(reader, entity, id, [start or LAST], budget.BATCH)
    key = keys.newest if start is None else keys.up_to(start)
    upper: VersionRow | None = None
    most, begun = budget.BATCH, False
    while key is not None:
        batch = [key]
        while len(batch) < most and (lower := keys.previous(batch[-1])) is not None:
            batch.append(lower)
        lacking = [(id, each) for each in batch if (id, each) not in rows]
        found, left = reader.documents({entity: lacking})[entity]
        read, rows, unread = {**rows, **found}, {}, {place for _, place in left}
        most = min(budget.BATCH, max(1, 2 * len(read)))  # where they are large, all are measured
        batch = list(takewhile(lambda each: each not in unread, batch))  # noqa: B023 - used at once
        for each in batch:
            row = read.get((id, each))  # None if retention has just removed it
            if upper is not None:
                yield Pair(entity, upper, row, keys.trusted)
                begun = True
            if row is None:
                return
            upper = row
        key = keys.previous(batch[-1])
        further = skip(keys, batch[-1]) if skip and begun and key is not None else None
        if further is not None:
            key, upper = further, None
    if upper is not None:
        yield Pair(entity, upper, None, keys.trusted)
