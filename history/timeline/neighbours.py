"""Versions, each with the one that it is compared with; and why a version is not in the store, as
far as what is left shows it.

The store has no record of what retention removed. Its witnesses are the snapshot's createdAt, the
times of the versions that are left, and the list of archived days
(docs/decisions/0018-missing-versions.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time
from itertools import chain
from types import MappingProxyType

from django.conf import settings
from django.utils.translation import gettext as _

from history.base import clock
from history.daily.window import Window
from history.entities import Entity
from history.record import ChangeType
from history.timeline import budget
from history.timeline.query import (
    Absence,
    Filters,
    NotFoundError,
    NoVersionError,
    OlderThanRetentionError,
    storable,
    unknown,
)
from history.timeline.reading import Reader
from history.timeline.row import (
    CLOCK_TOLERANCE,
    LAST,
    Key,
    Keys,
    Located,
    Named,
    Pair,
    VersionRow,
    parse,
)


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


def kept_from() -> datetime:
    """The first moment of the days that are kept, now; what is older may be gone any time."""
    window = Window.at(clock.now(), settings.ANNALS.retention_days, 0)
    return datetime.combine(window.oldest, time(), UTC)


def check_retention(filters: Filters) -> None:
    """Raise OlderThanRetentionError where only days before retention are asked for."""
    start = kept_from()
    if filters.until is not None and filters.until <= start:
        text = _("versions before {day} are not kept")
        raise OlderThanRetentionError(text.format(day=f"{start:%Y-%m-%d}"))


def below(reader: Reader, pair: Pair) -> Absence | None:
    """Why the store has no version below this one, its lowest; None if there never was one. One
    query where there is an archive."""
    entity, row = pair.entity, pair.row
    first = row.type == ChangeType.CREATE
    if row.version == 0 or (first and row.version == 1):
        return None
    if first:  # deleted and created again: createdAt is about the second life
        return _in_archive(reader, entity, row.id) or Absence.UNKNOWN
    created, start = _created(pair), _start(reader, entity)
    if created is not None and created >= start + CLOCK_TOLERANCE and pair.trusted:
        return _never(reader)
    archived = _in_archive(reader, entity, row.id)
    if archived or created is None or created >= start - CLOCK_TOLERANCE:
        return archived or Absence.UNKNOWN
    return Absence.REMOVED


def between(reader: Reader, pair: Pair) -> Absence | None:
    """Why versions between a version and the one before it are missing; None if none is."""
    row, before = pair.row, pair.before
    if before is None or before.version >= row.version - 1:
        return None
    return above(reader, pair.entity, before.key, pair.trusted)


def above(reader: Reader, entity: Entity, key: Key, trusted: bool) -> Absence:
    """Why versions right above a key are missing.

    A version that is dated after the one before it stays in the store as long as that one. So it
    never arrived, unless clocks were wrong: where the one before is near the start of retention, or
    where the times of the entity contradict its numbers.
    """
    kept = key.updated_at >= _start(reader, entity) + CLOCK_TOLERANCE
    return _never(reader) if kept and trusted else Absence.UNKNOWN


def before(reader: Reader, pair: Pair, moment: datetime) -> Absence | None:
    """Why the store has nothing of an entity at a moment before this version, its lowest; None if
    the entity did not exist then."""
    created = _created(pair)
    if created is not None and moment < created and pair.row.type != ChangeType.CREATE:
        return None
    return below(reader, pair)


def error(why: Absence | None, name: str, version: int | None = None) -> NotFoundError:
    """The exception for a version that is not there. name: what was asked for. version: its number
    where the store has others of the entity."""
    if why is not None and why.was_kept:
        text = _("{name}: older than what is kept")
        if why is Absence.UNKNOWN:
            text = _("{name}: not in the store; retention may have removed it")
        return OlderThanRetentionError(text.format(name=name), version, why)
    return NoVersionError(_("the store has no {name}").format(name=name), version, why)


def _never(reader: Reader) -> Absence:
    """It never arrived; but as long as the old service does not answer, it may have it."""
    return Absence.UNKNOWN if reader.old.failed else Absence.NEVER_ARRIVED


def _start(reader: Reader, entity: Entity) -> datetime:
    """The first moment of what is read: of the days that are kept, or of the archived ones."""
    oldest = reader.archive.oldest_day(entity) if reader.archive else None
    kept = kept_from()
    return kept if oldest is None else min(kept, datetime.combine(oldest, time(), UTC))


def _in_archive(reader: Reader, entity: Entity, id: str) -> Absence | None:
    """Whether the archive may have it, unless it is read already."""
    archive = None if reader.archive else reader.open_archive()
    return Absence.ARCHIVED if archive and archive.may_have(entity, id) else None


def _created(pair: Pair) -> datetime | None:
    """When it was created; without an offset it is UTC, as everywhere in the messages."""
    snapshot = parse(pair.row.data)
    value = snapshot.get(pair.entity.created_at) if isinstance(snapshot, dict) else None
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return moment.replace(tzinfo=moment.tzinfo or UTC) if moment else None
