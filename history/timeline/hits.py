"""What a text finds: entities with this id, and applications with this business key."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from history import looks, masking, need_to_know
from history.entities import BY_NAME, CHILDREN, ENTITIES, ROOT, Entity, root
from history.timeline import paging, rows, token
from history.timeline.newest import Newest, applications_of, first, newest_keys
from history.timeline.statements import Key

ID = "id"
# Of the documents with one value, only those that were seen last are looked at: for each of them
# the newest version is looked up in every day.
MAX_DOCUMENTS = 1_000


class Carrier(NamedTuple):
    """A document that has, or once had, a business key."""

    entity: Entity
    id: str


class Position(NamedTuple):
    """The place of a hit in the results. stage: 0 for an id, 1 for a key. rank: the index of the
    kind; of a key the microseconds from the change back to the epoch, so that the newest is first.
    """

    stage: int
    rank: int
    id: str


@dataclass(frozen=True, slots=True)
class Hit:
    """An entity that a text finds. key: name of the business key, or ID. newest: key of its newest
    version; None for an application of which the store has only children. updated_at: of that
    version, or of the newest one of the carriers."""

    entity: Entity
    id: str
    key: str
    newest: Key | None
    updated_at: datetime
    carriers: tuple[Carrier, ...] = ()

    @property
    def position(self) -> Position:
        if self.key == ID:
            return Position(0, ENTITIES.index(self.entity), self.id)
        return Position(1, -((self.updated_at - token.EPOCH) // token.MICROSECOND), self.id)


@dataclass(frozen=True, slots=True)
class Hits:
    """The hits of one text in the order of the results, each entity once. limited: not all
    documents with the value were looked at."""

    hits: tuple[Hit, ...]
    limited: bool


class _Document(NamedTuple):
    """A row of the search_key table."""

    value: str
    name: str
    carrier: Carrier


def find(texts: Sequence[str]) -> dict[str, Hits]:
    """The hits of each text. The number of queries does not depend on the texts."""
    found: dict[str, dict[Carrier, Hit]] = {text: {} for text in texts}
    ids = [text for text in texts if paging.storable(text)]
    if not texts:
        return {}
    # Keys that are masked for the reader find nothing: the number of hits would tell who has a
    # value.
    asked = first(texts, ids, masking.searchable_keys(), MAX_DOCUMENTS + 1)
    for entity in ENTITIES:
        for id, its in asked.newest[entity].items():
            found[id][Carrier(entity, id)] = Hit(entity, id, ID, its, its.updated_at)
    if ROOT is not None:
        for id, moment in asked.children.items():
            if Carrier(ROOT, id) not in found[id]:
                found[id][Carrier(ROOT, id)] = Hit(ROOT, id, ID, None, moment)
    documents = _documents(asked.documents)
    children = _children(documents)
    grouped = _by_place(documents, children)
    own = _own_keys({place for _, place in grouped})
    for (value, place), theirs in grouped.items():
        carriers = tuple(dict.fromkeys(each.carrier for each in theirs))
        key = own.get(place)
        seen = [children[carrier].key for carrier in carriers if carrier in children]
        moments = [key.updated_at] if key else [each.updated_at for each in seen]
        if moments and place not in found[value]:
            found[value][place] = Hit(*place, theirs[0].name, key, max(moments), carriers)
    found = _visible(found)
    counts = {text: sum(each.value == text for each in documents) for text in texts}
    return {
        text: Hits(
            tuple(sorted(found[text].values(), key=lambda hit: hit.position)),
            counts[text] > MAX_DOCUMENTS,
        )
        for text in texts
    }


def _visible(found: dict[str, dict[Carrier, Hit]]) -> dict[str, dict[Carrier, Hit]]:
    """The hits that the present reader may see. The others are gone before pages are made of them,
    so that no page has a gap and no count tells of them."""
    if not need_to_know.applies():
        return found
    hits = [hit for its in found.values() for hit in its.values()]
    places = {Carrier(hit.entity, hit.id) for hit in hits}
    places |= {carrier for hit in hits for carrier in hit.carriers}
    of = {place: {place.id} for place in places if place.entity.root}
    of |= {place: set() for place in places if place.entity.alone}
    for entity in CHILDREN:
        ids = [place.id for place in places if place.entity is entity]
        for id, owners in (rows.owners(entity, ids) if ids else {}).items():
            of[Carrier(entity, id)] = owners
    every = {application for owners in of.values() for application in owners}
    allowed = need_to_know.may_see(every, rows.root_documents)
    looks.hidden(sorted(every - allowed))
    shown = {place for place, owners in of.items() if owners <= allowed}
    return {
        text: {
            place: replace(hit, carriers=tuple(filter(shown.__contains__, hit.carriers)))
            for place, hit in its.items()
            if place in shown and (not hit.carriers or shown.intersection(hit.carriers))
        }
        for text, its in found.items()
    }


def _documents(found: Iterable[tuple[str, str, str, str]]) -> list[_Document]:
    """The documents in these rows, in the order of key names, ENTITIES and ids."""
    documents = [
        _Document(value, name, Carrier(BY_NAME[kind], id))
        for value, name, kind, id in found
        if kind in BY_NAME
    ]
    return sorted(
        documents,
        key=lambda each: (each.name, ENTITIES.index(each.carrier.entity), each.carrier.id),
    )


def _by_place(
    documents: Iterable[_Document], children: Mapping[Carrier, Newest]
) -> Mapping[tuple[str, Carrier], list[_Document]]:
    """The documents of each value, by what is shown for them: the application, or a document that
    stands alone. A child belongs to the application that its newest version names; one of which no
    version is kept belongs to none."""
    grouped: dict[tuple[str, Carrier], list[_Document]] = {}
    for each in documents:
        carrier = each.carrier
        if carrier.entity.parent is None:
            grouped.setdefault((each.value, carrier), []).append(each)
        elif carrier in children:
            place = Carrier(root(), children[carrier].application)
            grouped.setdefault((each.value, place), []).append(each)
    return grouped


def _own_keys(places: Collection[Carrier]) -> dict[Carrier, Key]:
    """The highest key of each of these that the store has. One query for each kind."""
    found: dict[Carrier, Key] = {}
    for entity in {place.entity for place in places}:
        ids = {place.id for place in places if place.entity is entity}
        found |= {Carrier(entity, id): key for id, key in newest_keys(entity, ids).items()}
    return found


def _children(documents: Iterable[_Document]) -> dict[Carrier, Newest]:
    """The newest versions of those documents that are children, as far as the store has any."""
    found: dict[Carrier, Newest] = {}
    wanted = {each.carrier for each in documents}
    for entity in CHILDREN:
        ids = [carrier.id for carrier in wanted if carrier.entity is entity]
        for id, its in applications_of(entity, ids).items():
            found[Carrier(entity, id)] = its
    return found
