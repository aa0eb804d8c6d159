"""Versions, each with the one that it is compared with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType

from history.entities import Entity
from history.timeline import budget
from history.timeline.query import storable, unknown
from history.timeline.reading import Reader
from history.timeline.row import LAST, Key, Keys, Located, Named, Pair, VersionRow


def batches(
    reader: Reader,
    wanted: Sequence[Located],
    known: Mapping[Named, Keys],
    read: Mapping[Located, VersionRow] = MappingProxyType({}),
) -> Iterator[list[Pair]]:
    """These versions in their order, each with its previous version. Lists, for each of which one
    query reads the documents: BATCH of them, fewer where READ_BYTES allow no more.

    known: all keys of each of the entities. read: what was read before; no query where that is all.
    What retention has just removed is left out.
    """
    left, most, rows = list(wanted), budget.BATCH, dict(read)
    while left:
        pairs = [(place, _lower(place, known)) for place in left[:most]]
        needed = dict.fromkeys(each for pair in pairs for each in pair if each is not None)
        ready = len(pairs)
        if lacking := [place for place in needed if place not in rows]:
            found, unread = reader.documents(lacking)
            rows = {place: rows[place] for place in needed if place in rows} | found
            if unread:
                ready = next(at for at, pair in enumerate(pairs) if not unread.isdisjoint(pair))
        # Where documents are large, all that are asked for are measured.
        left, most = left[ready:], min(budget.BATCH, 2 * max(1, ready))
        if made := [
            Pair(rows[place], rows.get(low) if low else None, known[place[:2]].trusted)
            for place, low in pairs[:ready]
            if place in rows
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
            reader.want(entity, id)
            keys, rows = reader.newest(entity, id, below, count)
            if keys:
                return cls(reader, entity, id, Keys(keys), rows)
        raise unknown(entity.name, id)

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
