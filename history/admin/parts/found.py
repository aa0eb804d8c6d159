"""What a search has found, as the rows of a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from operator import attrgetter

from history import timeline
from history.admin.parts import held, links
from history.admin.parts.cards import fields_of, title
from history.admin.parts.headline import ROLE, for_titles, headline, status
from history.documents.exactjson import Json
from history.entities import ENTITIES, Entity
from history.held_messages import OpenMessages
from history.record import ChangeType
from history.timeline import Found, Reader, Results
from history.versions import Named

BY_ID = "id"
MAX_CARRIERS = 3


@dataclass(frozen=True, slots=True)
class Group:
    """What one text has found. limited: there is more than the search looks at."""

    query: str
    hits: Sequence[Mapping[str, object]]
    next_token: str | None
    limited: bool


def make_groups(reader: Reader, found: Mapping[str, Results]) -> list[Group]:
    """The results of each text as rows. One query for each kind."""
    every = [each for results in found.values() for each in results.found]
    wanted = {
        (entity, id)
        for each in every
        for entity, id in each.carriers[:MAX_CARRIERS]
        if entity.parent is not None
    }
    wanted |= {(each.entity, each.id) for each in every if _bare(each)}
    documents = timeline.documents(for_titles(reader), wanted)
    latest = reader.newest_children({each.id for each in every if each.entity.root})
    messages = timeline.open_messages(reader, every)
    return [
        Group(
            text,
            [_hit(each, documents, messages) for each in _by_change(results.found, latest)],
            results.next_token,
            results.limited,
        )
        for text, results in found.items()
    ]


def key_title(entity: Entity, key: str) -> str:
    """The label of a business key: that of the field it is taken from, in this kind or another."""
    labels = [
        fields_of(each).label(pointer)
        for each in (entity, *ENTITIES)
        for name, pointer in each.search
        if name == key
    ]
    return next((label for label in labels if label), key)


def _by_change(found: Sequence[Found], latest: Mapping[str, datetime]) -> list[Found]:
    """In the order of Results. An application changes with its children. latest: when they last
    did, by application."""
    changed = {one.id: max(one.updated_at, latest.get(one.id, one.updated_at)) for one in found}
    moved = (replace(one, updated_at=changed[one.id]) if one.entity.root else one for one in found)
    return sorted(moved, key=attrgetter("position"))


def _hit(one: Found, documents: Mapping[Named, Json], messages: OpenMessages) -> dict[str, object]:
    """One found entity. held: how many of its changes are in quarantine, in words. key: label of
    the business key it was found by, empty for its id. carriers: text and address of the children
    with the key. application_url: of a child, else empty."""
    data = documents.get((one.entity, one.id)) if _bare(one) else one.data
    application = one.application if one.entity.parent is not None else None
    return {
        "kind": title(one.entity),
        "id": one.id,
        "title": headline(data),
        "status": status(one.data, fields_of(one.entity)),
        "key": "" if one.key == BY_ID else key_title(one.carriers[0][0], one.key),
        "carriers": [_link(each, documents[each]) for each in one.carriers if each in documents],
        "deleted": one.type is ChangeType.DELETE,
        "held": held.mark(timeline.held_of(one.named, messages)),
        "url": links.landing(one.entity, one.id),
        "application_url": links.application(application) if application else "",
        "updated_at": one.updated_at,
    }


def _bare(one: Found) -> bool:
    """Whether it was deleted by a version without a document."""
    return one.type is ChangeType.DELETE and one.data is None


def _link(carrier: Named, data: Json) -> tuple[str, str]:
    entity, id = carrier
    role = fields_of(entity).word("/role", str(data.get(ROLE))) if isinstance(data, dict) else ""
    named = headline(data) or id
    return (f"{role or title(entity)} {named}", links.timeline(entity, id))
