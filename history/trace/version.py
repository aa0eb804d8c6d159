"""The fate of one version of an entity."""

from __future__ import annotations

from datetime import datetime

from django.db import connection

from history import complete_to, looks, need_to_know, quarantined, timeline
from history.entities import Entity
from history.quarantined import Place, Quarantined
from history.timeline.query import Absence
from history.timeline.sources import memory, old, rows, statements, union
from history.timeline.sources.statements import Key
from history.trace.fate import Fate, How, MayBe, Name, State

_LATE = """
    SELECT topic, partition, "offset", noted_at FROM late_row
    WHERE "table" = %s AND day = %s AND row_id = %s AND version = %s ORDER BY id LIMIT 1
"""
_SUMS = """
    SELECT coalesce(sum(lost), 0)::bigint, coalesce(sum(expired), 0)::bigint
    FROM ingest_ledger WHERE topic = ANY(%s)
"""


@memory.remembered()
def of_version(entity: Entity, id: str, number: int) -> Fate:
    """What became of a version. A version that is stored is `stored`, whatever happened to other
    messages with its number. id: one that an entity can have. Up to nine queries. Raises what
    need_to_know.permit raises."""
    name = Name(entity.name, id, number)
    keys = rows.keys(entity, [id]).get(id, [])
    answered = bool(keys) or old.want(entity, id)
    looks.read(rows.confine(entity, [id]))
    if not answered:
        need_to_know.undecided()
    there = [key for key in keys if key.version == number]
    if there:
        return _stored(entity, name, there[-1])
    held = quarantined.of_versions(entity, [(id, number, number)]).get(id, {}).get(number)
    if held is not None:
        return quarantined_fate(held)
    before = quarantined.resolved(entity, id, number)
    if before is not None or _removed(entity, id, number):
        place, at = (before.place, before.settled_at) if before else (None, None)
        return Fate(state=State.EXPIRED, how=How.REMOVED, name=name, place=place, at=at)
    theirs = [key.version for key in union.only_old(entity, id, keys)]
    if number in theirs:
        return Fate(state=State.UNKNOWN, how=How.ONLY_OLD, name=name)
    never = bool(keys) and number > max((*theirs, *(key.version for key in keys)))
    return Fate(
        state=State.UNKNOWN,
        how=How.NEVER_THERE if never else How.NEVER_SEEN,
        name=name,
        may_be=_may_be(entity),
    )


def quarantined_fate(held: Quarantined) -> Fate:
    """The fate of a message that is or was in quarantine."""
    state, how = State.QUARANTINED, How.IN_QUARANTINE
    if held.status == "discarded":
        how = How.DISCARDED
    elif held.status == "resolved":
        state, how = {
            "stored": (State.STORED, How.STORED_FROM),
            "repeated": (State.REPEATED, How.REPEATED),
            "expired": (State.EXPIRED, How.TOO_OLD),
        }.get(held.outcome, (State.STORED, How.READ))
    settled = held.settled_at if held.status == "resolved" else None
    return Fate(
        state=state,
        how=how,
        name=Name(held.entity, held.id, held.version),
        # What Annals asked for was in no partition.
        place=held.place if held.place.partition >= 0 else None,
        at=settled or held.came_at,
        settled_at=held.settled_at,
        reason=held.reason if state is State.QUARANTINED else "",
        detail=held.detail if state is State.QUARANTINED else "",
        certain=how is not How.READ,
    )


def _stored(entity: Entity, name: Name, key: Key) -> Fate:
    """A stored version. Which message brought it is known of rows that entered a sealed day, and of
    those that were in quarantine first."""
    origin = statements.of(entity, name.id).get((key.version, key.updated_at))
    if origin is not None:
        return Fate(
            state=State.STORED,
            how=How.RECOVERED,
            name=name,
            at=origin.at,
            made_at=key.updated_at,
            source=origin.source,
        )
    place, at = _late(entity, name, key)
    if place is None and name.version is not None:
        first = quarantined.resolved(entity, name.id, name.version)
        if first is not None and first.outcome == "stored":
            place, at = first.place, first.settled_at
    return Fate(
        state=State.STORED,
        how=How.STORED if place is None else How.STORED_FROM,
        name=name,
        place=place,
        at=at,
        made_at=key.updated_at,
    )


def _late(entity: Entity, name: Name, key: Key) -> tuple[Place | None, datetime | None]:
    with connection.cursor() as cursor:
        day = key.updated_at.date()
        cursor.execute(_LATE, [entity.table, day, name.id, name.version])
        row = cursor.fetchone()
    return (Place(*row[:3]), row[3]) if row else (None, None)


def _removed(entity: Entity, id: str, number: int) -> bool:
    """Whether the rest of the entity shows that the store had it and retention removed it."""
    try:
        timeline.version(entity, id, number, frozenset())
    except timeline.NotFoundError as error:
        return error.why in (Absence.REMOVED, Absence.ARCHIVED)
    return False


def _may_be(entity: Entity) -> MayBe:
    state = complete_to.read([entity])
    with connection.cursor() as cursor:
        cursor.execute(_SUMS, [list(entity.topics)])
        lost, expired = cursor.fetchone() or (0, 0)
    return MayBe(state.lag_messages, lost, expired, state.complete_to)
