"""The keys of an entity's versions: which was current at a moment, which comes before which; and
versions, each read with the one that it is compared with."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import chain
from types import MappingProxyType

from history.entities import Entity
from history.timeline import budget
from history.timeline.gate import Reader
from history.timeline.query import storable, unknown
from history.versions import CLOCK_TOLERANCE, FIRST, LAST, Key, Located, Named, Pair, VersionRow


class Keys:
    """Keys of one entity, ascending: all that the store has, at least one."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self._keys = sorted(keys)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Keys) and self._keys == other._keys

    def __hash__(self) -> int:
        return hash(tuple(self._keys))

    @property
    def newest(self) -> Key:
        return self._keys[-1]

    @property
    def lowest(self) -> Key:
        return self._keys[0]

    @cached_property
    def trusted(self) -> bool:
        """Whether the times follow the numbers, up to CLOCK_TOLERANCE."""
        newest = FIRST.updated_at
        for key in self._keys:
            if newest - key.updated_at > CLOCK_TOLERANCE:
                return False
            newest = max(newest, key.updated_at)
        return True

    def current(self, moment: datetime) -> Key | None:
        """The highest key that was there at the moment; None before the first one."""
        there = (key for key in reversed(self._keys) if key.updated_at <= moment)
        return next(there, None)

    def previous(self, key: Key) -> Key | None:
        """The key with the nearest lower version number; None if there is none.

        Where a producer gave that number twice: the latest one that is not younger than `key`,
        else the oldest.
        """
        below = bisect_left(self._keys, (key.version,))
        if below == 0:
            return None
        low = self._keys[below - 1]
        if below > 1 and self._keys[below - 2].version == low.version:
            twins = self.of_version(low.version)
            return next(
                (twin for twin in reversed(twins) if twin.updated_at <= key.updated_at), twins[0]
            )
        return low

    def after_gap(self, version: int) -> Key | None:
        """The lowest key above this number; None where no number between the two is missing."""
        place = bisect_left(self._keys, (version + 1,))
        following = self._keys[place] if place < len(self._keys) else None
        return following if following and following.version > version + 1 else None

    def above(self, key: Key | None) -> Key | None:
        """The lowest key with a number above that of a key; of None, the lowest one."""
        place = bisect_left(self._keys, (key.version + 1,)) if key else 0
        return self._keys[place] if place < len(self._keys) else None

    def down(self, key: Key) -> Iterator[Key]:
        """This key, or the highest one below it; and each that is the previous one of the one
        before."""
        place = bisect_right(self._keys, key)
        lower = self._keys[place - 1] if place else None
        while lower is not None:
            yield lower
            lower = self.previous(lower)

    def proves(self, key: Key) -> bool:
        """Whether the previous key of this one is that of the entity, if these are all of its keys
        from some place of an order to another: no other one can be between the two."""
        if (low := self.previous(key)) is None:
            return key.version == 0
        return low.version == key.version - 1 and low.updated_at <= key.updated_at

    def of_version(self, version: int) -> Sequence[Key]:
        """Every key with this version number: none, one, or the twins."""
        start = bisect_left(self._keys, (version,))
        return self._keys[start : bisect_left(self._keys, (version + 1,))]


def batches(
    reader: Reader,
    wanted: Sequence[Located],
    known: Mapping[Named, Keys],
    read: Mapping[Located, VersionRow] = MappingProxyType({}),
    *,
    as_list: bool = False,
) -> Iterator[list[Pair]]:
    """These versions in their order, each with its previous version. Lists, for each of which one
    query reads the documents: BATCH of them, fewer where READ_BYTES allow no more.

    known: all keys of each of the entities. read: what was read before; no query where that is all.
    What retention has just removed is left out. as_list: so is what cannot be read, and what would
    be compared with it; Reader.damaged has the former.
    """
    left, most, rows = list(wanted), budget.BATCH, dict(read)
    while left:
        pairs = [(place, _lower(place, known)) for place in left[:most]]
        needed = dict.fromkeys(each for pair in pairs for each in pair if each is not None)
        ready = len(pairs)
        if lacking := [place for place in needed if place not in rows]:
            found, unread = reader.documents(lacking, as_list=as_list)
            rows = {place: rows[place] for place in needed if place in rows} | found
            if unread:
                ready = next(at for at, pair in enumerate(pairs) if not unread.isdisjoint(pair))
        # Where documents are large, all that are asked for are measured.
        left, most = left[ready:], min(budget.BATCH, 2 * max(1, ready))
        if made := [
            Pair(rows[place], rows.get(low) if low else None, known[place[:2]].trusted)
            for place, low in pairs[:ready]
            if place in rows and not (low and low in reader.damaged)
        ]:
            yield made


def _lower(place: Located, known: Mapping[Named, Keys]) -> Located | None:
    entity, id, key = place
    low = known[entity, id].previous(key)
    return None if low is None else (entity, id, low)


@dataclass(frozen=True, slots=True)
class Document:
    """All keys of one entity, and those of its versions that came with them."""

    reader: Reader
    entity: Entity
    id: str
    keys: Keys
    rows: Mapping[Located, VersionRow]

    @classmethod
    def of(
        cls, reader: Reader, entity: Entity, id: str, below: Sequence[Key] = (), count: int = 0
    ) -> Document:
        """With its highest versions up to each of these numbers and moments, this many of each. The
        old service is asked too. One query. Raises NoVersionError where there is nothing of it."""
        if storable(id):
            reader.shown_old.want(entity, id)
            keys, rows = reader.newest(entity, id, below, count)
            if keys:
                return cls(reader, entity, id, Keys(keys), rows)
        raise unknown(entity, id)

    def batches(self, keys: Iterable[Key]) -> Iterator[list[Pair]]:
        """The versions with these keys, as in batches()."""
        named = (self.entity, self.id)
        places = [(*named, key) for key in keys]
        return batches(self.reader, places, {named: self.keys}, self.rows)

    def pairs(self, *keys: Key) -> list[Pair]:
        """All of them at once."""
        return list(chain.from_iterable(self.batches(keys)))

    def lowest(self) -> Pair | None:
        """The lowest stored version; None where retention has just removed it."""
        return next(iter(self.pairs(self.keys.lowest)), None)


def descending(reader: Reader, entity: Entity, id: str, start: Key = LAST) -> Iterator[Pair]:
    """The versions from `start` down, or from the highest one below it; each is the one that the
    pair before it was compared with. A twin that no version is compared with is not among them.
    Raises NoVersionError where there is nothing of the entity."""
    document = Document.of(reader, entity, id, [start], budget.BATCH + 1)
    for pair in chain.from_iterable(document.batches(document.keys.down(start))):
        yield pair
        if pair.before is None:
            return
