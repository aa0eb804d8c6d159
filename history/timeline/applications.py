"""The state of an application with its children at a moment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from django.utils.translation import gettext as _

from history.entities import ENTITIES, Entity
from history.record import ChangeType
from history.timeline import absence, compose, neighbours
from history.timeline.budget import Budget
from history.timeline.compose import Version
from history.timeline.query import (
    Absence,
    NotFoundError,
    NoVersionError,
    storable,
    unknown_application,
)
from history.timeline.reading import Reader
from history.timeline.row import Key, Keys, Located, Named

Members: TypeAlias = Mapping[Named, list[Key]]


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
    there: dict[Named, Keys] = {}
    if storable(id):
        reader.want(None, id)
        members = members or reader.members(id)
        ordered = sorted(members, key=lambda its: (ENTITIES.index(its[0]), its[1]))
        there = {named: Keys(members[named]) for named in ordered[:most]}
    current = {named: key for named, its in there.items() if (key := its.current(moment))}
    lowest = {named: its.lowest for named, its in there.items() if named not in current}
    wanted = [(*named, key) for named, key in (current | lowest).items()]
    parts: list[Version] = []
    missing: list[MissingPart] = []
    budget, gone = Budget(), set(current)
    for pairs in neighbours.batches(reader, wanted, there):
        its = [pair for pair in pairs if pair.entity.root or pair.row.product_instance_id == id]
        shown = [pair for pair in its if pair.named in current]
        for part in compose.versions(reader, shown, frozenset()):
            fits = budget.takes(part.size) or part.entity.root
            parts.append(part if fits else part.without_snapshot())
        first = [pair for pair in its if pair.named in lowest]
        whys = [(*pair.named, absence.before(reader, pair, moment)) for pair in first]
        missing += [MissingPart(entity, part, why) for entity, part, why in whys if why]
        gone -= {pair.named for pair in pairs}
    missing += [MissingPart(*named, Absence.REMOVED) for named in current if named in gone]
    if not parts:
        raise _nothing(id, bool(there), missing)
    children = [part for part in parts if not part.entity.root]
    return ApplicationState(
        application=next((part for part in parts if part.entity.root), None),
        children=tuple(part for part in children if part.type is not ChangeType.DELETE),
        deleted=tuple(part for part in children if part.type is ChangeType.DELETE),
        missing=tuple(missing),
        unread=len(members or ()) - len(there),
        members=members or {},
    )


def before_gaps(reader: Reader, state: ApplicationState) -> Mapping[Named, Version]:
    """The next version of each part after whose version some are missing: these may have come
    before the moment. Without snapshots; no query where nothing is missing."""
    there: dict[Named, Keys] = {}
    wanted: list[Located] = []
    own = [state.application] if state.application else []
    for part in (*own, *state.children, *state.deleted):
        named = part.entity, part.id
        there[named] = keys = Keys(state.members[named])
        if following := keys.after_gap(part.version):
            wanted.append((*named, following))
    return {
        (each.entity, each.id): each.without_snapshot()
        for pairs in neighbours.batches(reader, wanted, there)
        for each in compose.versions(reader, pairs, frozenset())
    }


def _nothing(id: str, known: bool, missing: Sequence[MissingPart]) -> NotFoundError:
    """The exception for an application of which there is no version of a moment."""
    if not known:
        return unknown_application(id)
    if not missing:
        return NoVersionError(_("application {id} did not exist at that moment").format(id=id))
    kept = next((part.why for part in missing if part.why.was_kept), missing[0].why)
    return absence.error(kept, _("version of application {id} at that moment").format(id=id))
