"""An application with its children: the merged timeline, and the state at a moment."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from typing import TypeAlias

from django.utils.translation import gettext as _

from history.entities import ENTITIES, Entity, root
from history.record import ChangeType
from history.timeline import absence, compose, neighbours, paging
from history.timeline.budget import Budget
from history.timeline.paging import Slice
from history.timeline.query import (
    Absence,
    ApplicationQuery,
    NotFoundError,
    NoVersionError,
    storable,
)
from history.timeline.reading import Reader
from history.timeline.row import FIRST, IdKey, Key, Keys, Named, Pair, Place, VersionRow
from history.timeline.versions import Page, Version, parse


def timeline(reader: Reader, query: ApplicationQuery) -> Page:
    """A page of the versions of the application and all its children, by time; versions of one
    moment in the order of ENTITIES, id, version.

    One query for the places and keys of the versions, then one for their documents. Raises as
    pages.page does.
    """

    def read(reader: Reader, after: Place | None, size: int, _: Sequence[VersionRow]) -> Slice:
        return _read(reader, query, after, size)

    found = paging.page(reader, query, read)
    if not found.versions and query.page_token is None:
        if not reader.members(query.id):
            raise _unknown(query.id)
        absence.check_retention(query.filters)
    return found


def _read(reader: Reader, query: ApplicationQuery, after: Place | None, size: int) -> Slice:
    found, keys = reader.of_application(query.id, query.filters, query.order, after, size + 1)
    shown, more = found[:size], len(found) > size
    known: dict[Entity, dict[str, Keys]] = defaultdict(dict)
    for (entity, id), its in keys.items():
        known[entity][id] = Keys(its)
    wanted: dict[Entity, list[IdKey]] = defaultdict(list)
    for entity, id, key in shown:
        if id in known[entity]:
            wanted[entity].append((id, key))
    read = reader.documents(
        {entity: neighbours.needed(its, known[entity]) for entity, its in wanted.items()}
    )
    pairs: dict[tuple[Entity, str, Key], Pair] = {}
    unread: set[tuple[Entity, str, Key]] = set()
    for entity, places in wanted.items():
        first, left = neighbours.first_pairs(reader, entity, places, known[entity], read[entity])
        pairs |= {(entity, pair.row.id, pair.row.key): pair for pair in first}
        unread |= {(entity, *place) for place in left}
    ready = list(takewhile(lambda place: place not in unread, shown))
    kept = [pairs[place] for place in ready if place in pairs]
    kind, id, key = ready[-1] if ready else (root(), "", FIRST)
    end = Place(key.updated_at, ENTITIES.index(kind), id, key.version)
    return Slice(kept, end if more or len(ready) < len(shown) else None)


Members: TypeAlias = Mapping[Named, list[Key]]
# Children of a moment that are read at once, if they are not large.
AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class MissingPart:
    """The application itself, or a child, that existed at a moment, or may have, although the store
    has no version of it from then."""

    entity: Entity
    id: str
    why: Absence


@dataclass(frozen=True, slots=True)
class ApplicationState:
    """An application as it was at a moment. application: None where only children are known.
    children: those that were there, by kind in the order of ENTITIES, then by id. deleted: those
    that had been deleted by then. missing: those of which the version is not in the store.
    Patches and changes are left out, and beyond the budget of a page also the snapshots. unread:
    how many parts were not looked at. members: the keys of all parts, at any time."""

    application: Version | None
    children: tuple[Version, ...]
    deleted: tuple[Version, ...]
    missing: tuple[MissingPart, ...]
    unread: int
    members: Members


def at(
    reader: Reader,
    id: str,
    moment: datetime,
    most: int | None = None,
    members: Members | None = None,
) -> ApplicationState:
    """The whole application as of a moment: of each part the highest version that was there. most:
    how many parts to read, by kind and id; None: all. members: of the state of another moment.

    A child counts where its version of that moment names the application; one without such a
    version where its lowest version does. One query for all keys, then one for the documents, more
    where these are large. Raises NoVersionError where the application did not exist, and
    OlderThanRetentionError where nothing is left of then.
    """
    parts: list[Version] = []
    budget = Budget()
    missing: list[MissingPart] = []
    there: dict[Entity, dict[str, Keys]] = defaultdict(dict)
    if storable(id):
        reader.old.want_application(id)
        members = members or reader.members(id)
        for (entity, part), its in sorted(members.items(), key=_by_kind)[:most]:
            there[entity][part] = Keys(its)
    documents = reader.documents({entity: _needed(keys, moment) for entity, keys in there.items()})
    for entity, keys in there.items():
        read = documents[entity]
        current = {part: key for part in keys if (key := keys[part].current(moment))}
        gone = dict(current)
        left: Sequence[IdKey] = sorted(current.items())
        while left:
            pairs, unread = neighbours.first_pairs(reader, entity, left[:AT_ONCE], keys, read)
            left = [*unread, *left[AT_ONCE:]]
            found = [pair for pair in pairs if pair.row.product_instance_id == id or entity.root]
            parts += [
                _within(budget, each) for each in compose.versions(reader, found, frozenset())
            ]
            for pair in pairs:
                del gone[pair.row.id]
            if left:
                wanted = neighbours.needed(left[:AT_ONCE], keys)
                read = reader.documents({entity: wanted})[entity]
        rest = {part: keys[part] for part in keys if part not in current}
        missing += _missing(reader, entity, id, moment, rest, documents[entity].rows)
        missing += [MissingPart(entity, part, Absence.REMOVED) for part in sorted(gone)]
    if not parts:
        raise _nothing(id, bool(there), missing)
    children = [part for part in parts if not part.entity.root]
    return ApplicationState(
        application=next((part for part in parts if part.entity.root), None),
        children=tuple(part for part in children if part.type is not ChangeType.DELETE),
        deleted=tuple(part for part in children if part.type is ChangeType.DELETE),
        missing=tuple(missing),
        unread=len(members or ()) - sum(map(len, there.values())),
        members=members or {},
    )


def _needed(keys: Mapping[str, Keys], moment: datetime) -> list[IdKey]:
    """The versions that at() reads first."""
    current = [(part, key) for part in sorted(keys) if (key := keys[part].current(moment))]
    lowest = [
        (part, key)
        for part in sorted(keys)
        if keys[part].current(moment) is None and (key := keys[part].lowest)
    ]
    return [*neighbours.needed(current[:AT_ONCE], keys), *lowest]


def _within(budget: Budget, part: Version) -> Version:
    """The part; a child without its snapshot where the budget is spent."""
    return part if budget.takes(part.size) or part.entity.root else part.without_snapshot()


def _by_kind(found: tuple[Named, list[Key]]) -> tuple[int, str]:
    (entity, id), _ = found
    return ENTITIES.index(entity), id


def _missing(
    reader: Reader,
    entity: Entity,
    application: str,
    moment: datetime,
    known: Mapping[str, Keys],
    read: Mapping[IdKey, VersionRow],
) -> list[MissingPart]:
    """Those of these parts, all of whose stored versions are younger than the moment, that existed
    then nevertheless."""
    found = []
    for row in neighbours.lowest(reader, entity, known, read):
        id = row.id
        if entity.root or row.product_instance_id == application:
            why = absence.before(
                reader, entity, row, parse(row.data), moment, trusted=known[id].trusted
            )
            if why is not None:
                found.append(MissingPart(entity, id, why))
    return found


def _nothing(id: str, known: bool, missing: Sequence[MissingPart]) -> NotFoundError:
    """The exception for an application of which there is no version of a moment."""
    if not known:
        return _unknown(id)
    if not missing:
        return NoVersionError(_("application {id} did not exist at that moment").format(id=id))
    kept = next((part.why for part in missing if part.why.was_kept), missing[0].why)
    return absence.error(kept, _("version of application {id} at that moment").format(id=id))


def _unknown(id: str) -> NoVersionError:
    return NoVersionError(_("the store has nothing of application {id}").format(id=id))
