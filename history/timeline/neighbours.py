"""Which version a version is compared with, and which versions between them are missing."""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from itertools import pairwise, takewhile
from typing import NamedTuple

from history import people
from history.entities import ENTITIES, Entity
from history.people import Author, unnamed
from history.timeline.reading import Reader
from history.timeline.row import FIRST, IdKey, Key, VersionRow


class Place(NamedTuple):
    """The position of a version in any timeline, also a merged one. kind: an index of ENTITIES."""

    updated_at: datetime
    kind: int
    id: str
    version: int


# How wrong clocks may be before times prove nothing.
CLOCK_TOLERANCE = timedelta(days=1)


class Pair(NamedTuple):
    """A version and the one it is compared with; None where the store has no lower one. trusted:
    as in Keys."""

    entity: Entity
    row: VersionRow
    before: VersionRow | None
    trusted: bool = True

    @property
    def place(self) -> Place:
        row = self.row
        return Place(row.updated_at, ENTITIES.index(self.entity), row.id, row.version)


def authors(pairs: Iterable[Pair]) -> dict[str, Author]:
    """The people and services that made these versions, by login and client id. No query, where
    the sources gave their names with all of them; otherwise one."""
    known: dict[str, Author] = {}
    unknown: set[str] = set()
    for row in (pair.row for pair in pairs):
        for login, named in ((row.author, row.names[:2]), (row.client_id, row.names[2:])):
            if login is None or login in known:
                continue
            if not named:
                unknown.add(login)
            else:
                known[login] = unnamed(login) if named[0] is None else Author(login, *named)
    return known | people.authors(unknown - known.keys())


class Keys:
    """All keys of one entity that the store has, ascending."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self._keys = sorted(keys)

    @property
    def newest(self) -> Key | None:
        return self._keys[-1] if self._keys else None

    @property
    def lowest(self) -> Key | None:
        return self._keys[0] if self._keys else None

    @cached_property
    def trusted(self) -> bool:
        """Whether the times follow the numbers, up to CLOCK_TOLERANCE."""
        newest = FIRST.updated_at
        for key in self._keys:
            if newest - key.updated_at > CLOCK_TOLERANCE:
                return False
            newest = max(newest, key.updated_at)
        return True

    @cached_property
    def ordered(self) -> bool:
        """Whether the order of times is that of numbers, each of which was given once."""
        return all(
            low.version < high.version and low.updated_at <= high.updated_at
            for low, high in pairwise(self._keys)
        )

    def above(self, key: Key) -> Key:
        """The key directly above this one, which must not be the highest."""
        return self._keys[bisect_right(self._keys, key)]

    def current(self, moment: datetime) -> Key | None:
        """The highest key that was there at the moment; None before the first one."""
        there = (key for key in reversed(self._keys) if key.updated_at <= moment)
        return next(there, None)

    def up_to(self, key: Key) -> Key | None:
        """This key, or the highest one below it; None if there is none."""
        place = bisect_right(self._keys, key)
        return self._keys[place - 1] if place else None

    def previous(self, key: Key) -> Key | None:
        """The key with the nearest lower version number; None if there is none.

        Where a producer gave that number twice: the latest one that is not younger than `key`,
        else the oldest.
        """
        below = bisect_left(self._keys, key.version, key=_version)
        if below == 0:
            return None
        number = self._keys[below - 1].version
        start = bisect_left(self._keys, number, key=_version)
        twins = [twin.updated_at for twin in self._keys[start:below]]
        return self._keys[start + max(0, bisect_right(twins, key.updated_at) - 1)]

    def of_version(self, version: int) -> Sequence[Key]:
        """Every key with this version number: none, one, or the twins."""
        start = bisect_left(self._keys, version, key=_version)
        return self._keys[start : bisect_right(self._keys, version, key=_version)]


def _version(key: Key) -> int:
    return key.version


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
    read, left = reader.first_bodies(entity, [(id, key) for key in unread])
    found.update((key, row) for (_, key), row in read.items())
    before = proven | {key: found[low] for key, low in wanted.items() if low in found}
    late = {key for _, key in left}
    ready = takewhile(lambda row: wanted.get(row.key) not in late, shown)
    return [Pair(entity, row, before.get(row.key), keys.trusted) for row in ready]


def fetch(
    reader: Reader, entity: Entity, wanted: Sequence[IdKey], known: Mapping[str, Keys]
) -> list[Pair]:
    """The versions of one kind with these ids and keys, each with its previous version; `known`
    has all keys of those ids. One query, more if they are large. What retention has just removed
    is left out."""
    found: list[Pair] = []
    left = wanted
    while left:
        pairs, left = first_fetched(reader, entity, left, known)
        found += pairs
    return found


def first_fetched(
    reader: Reader, entity: Entity, wanted: Sequence[IdKey], known: Mapping[str, Keys]
) -> tuple[list[Pair], Sequence[IdKey]]:
    """The first of them as in fetch, as many as may be read at once, and those not read yet."""
    lower = _lower(wanted, known)
    read, unread = reader.first_bodies(entity, needed(wanted, known))
    late = set(unread)
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
    """The versions that first_fetched reads for these."""
    lower = _lower(wanted, known)
    found: dict[IdKey, None] = {}
    for id, key in wanted:
        low = lower[id, key]
        found |= dict.fromkeys([(id, key)] if low is None else [(id, key), (id, low)])
    return list(found)


def _lower(wanted: Sequence[IdKey], known: Mapping[str, Keys]) -> dict[IdKey, Key | None]:
    return {place: known[place[0]].previous(place[1]) for place in wanted}


def lowest(reader: Reader, entity: Entity, known: Mapping[str, Keys]) -> Iterator[VersionRow]:
    """The lowest stored version of each of these entities, by id. One query, more if they are
    large. What retention has just removed is left out."""
    wanted = sorted((id, keys.lowest) for id, keys in known.items() if keys.lowest is not None)
    left: Sequence[IdKey] = wanted
    while left:
        read, left = reader.first_bodies(entity, left)
        yield from (read[place] for place in sorted(read))


def all_keys(reader: Reader, entity: Entity, ids: Collection[str]) -> dict[str, Keys]:
    """The keys of these entities, without those of which the store has nothing."""
    return {id: Keys(keys) for id, keys in reader.keys(entity, ids).items()}
