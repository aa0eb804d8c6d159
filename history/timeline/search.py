"""Search by id, or by a business key that any version of a document had."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import blake2b
from itertools import count
from typing import NamedTuple

from django.utils.translation import gettext as _

from history import looks, masking, need_to_know
from history.documents.exactjson import Json
from history.entities import BY_NAME, CHILDREN, ENTITIES, ROOT, SEARCH_VALUE_LENGTH, Entity, root
from history.record import ChangeType
from history.timeline import paging, token
from history.timeline.query import DEFAULT_PAGE_SIZE, BadParameterError
from history.timeline.sources import memory, rows
from history.timeline.sources.newest import Newest, applications_of, first, newest_keys
from history.timeline.sources.statements import Key, VersionRow
from history.timeline.versions import parse

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


MARK = 4


@dataclass(frozen=True, slots=True)
class Shown:
    """The marks of the hits on earlier pages. salt: all hits of the first page's moment have
    different marks with it, so that none of them can be taken for another."""

    salt: int
    marks: frozenset[bytes] = frozenset()

    def __contains__(self, hit: Hit) -> bool:
        return _mark(hit, self.salt) in self.marks

    def and_also(self, hits: Iterable[Hit]) -> Shown:
        return replace(self, marks=self.marks | {_mark(hit, self.salt) for hit in hits})

    def packed(self) -> tuple[int, str]:
        """As values of a page token."""
        return self.salt, b64encode(b"".join(sorted(self.marks))).decode()


def nothing(hits: Sequence[Hit]) -> Shown:
    """The state before the first page of these hits."""
    return Shown(next(salt for salt in count() if _distinct(hits, salt)))


def unpacked(salt: int, marks: str) -> Shown:
    """The reverse of packed()."""
    joined = b64decode(marks)
    return Shown(salt, frozenset(joined[at : at + MARK] for at in range(0, len(joined), MARK)))


def _distinct(hits: Sequence[Hit], salt: int) -> bool:
    return len({_mark(hit, salt) for hit in hits}) == len(hits)


def _mark(hit: Hit, salt: int) -> bytes:
    named = f"{salt} {hit.entity.name} {hit.id}"
    return blake2b(named.encode(), digest_size=MARK).digest()


@dataclass(frozen=True, slots=True)
class Found:
    """An entity with the id, or an application with the business key.

    key: name of the business key, or ID. carriers: the documents with the key; none for an id.
    application: id of its application, its own for an application; None for a kind that stands
    alone. version, type, data: of its
    newest version; None for an application of which the store has only children. updated_at: of
    that version, or of the newest one of the carriers; for an id, of the children.
    """

    entity: Entity
    id: str
    application: str | None
    key: str
    carriers: tuple[Carrier, ...]
    version: int | None
    type: ChangeType | None
    updated_at: datetime
    data: Json


@dataclass(frozen=True, slots=True)
class Results:
    """Entities with the id first, in the order of ENTITIES; then applications with the key, newest
    change first. Each is there once. next_token: None at the end. limited: more documents have the
    key than MAX_DOCUMENTS, and only those seen last were looked at."""

    found: tuple[Found, ...]
    next_token: str | None
    limited: bool


@memory.remembered()
def search(text: str, size: int = DEFAULT_PAGE_SIZE, page_token: str | None = None) -> Results:
    """A page of what has this id, or this value of a business key, letter for letter.

    Each page has the newest of what was on no earlier one, so nothing is lost or repeated while
    versions arrive. A fixed number of queries. Raises BadParameterError.
    """
    paging.check_size(size)
    if not searchable(text):
        text = _("must have 1 to {n} characters")
        raise BadParameterError("q", text.format(n=SEARCH_VALUE_LENGTH))
    binding = ("search", text, "shown")
    found = find([text])[text]
    before = nothing(found.hits)
    if page_token is not None:
        before = unpacked(*token.read(binding, page_token))
    rest = [hit for hit in found.hits if hit not in before]
    here, following = rest[:size], None
    if len(rest) > size:
        following = token.issue(binding, before.and_also(here).packed())
    return Results(_present(_load(here)), following, found.limited)


@memory.remembered()
def search_all(texts: Sequence[str], size: int = DEFAULT_PAGE_SIZE) -> dict[str, Results]:
    """The first results of each of these texts, without tokens. As many queries as for one."""
    found = find([text for text in texts if searchable(text)])
    loaded = iter(_load([hit for text in found for hit in found[text].hits[:size]]))
    results = {
        text: Results(_present([next(loaded) for _ in each.hits[:size]]), None, each.limited)
        for text, each in found.items()
    }
    return {text: results.get(text, Results((), None, limited=False)) for text in texts}


def documents(carriers: Collection[Carrier]) -> dict[Carrier, Json]:
    """The newest snapshots of these, without those of which the store has none. For a deleted one
    it may be older than its newest version. One query for each kind."""
    found: dict[Carrier, Json] = {}
    for entity in ENTITIES:
        ids = [carrier.id for carrier in carriers if carrier.entity is entity]
        for row in rows.newest_documents(entity, ids):
            found[Carrier(entity, row.id)] = parse(row.data)
    return found


def searchable(text: str) -> bool:
    """Whether this text can be an id or a business key."""
    return 0 < len(text) <= SEARCH_VALUE_LENGTH and "\0" not in text


def _present(found: Iterable[Found | None]) -> tuple[Found, ...]:
    return tuple(each for each in found if each is not None)


def _load(wanted: Sequence[Hit]) -> list[Found | None]:
    """The hits with their newest versions, one query for each kind; None for one that retention
    has just removed."""
    read: dict[tuple[Entity, str, Key], VersionRow] = {}
    for entity in ENTITIES:
        keys = {(hit.id, hit.newest) for hit in wanted if hit.entity is entity and hit.newest}
        for (id, key), row in rows.bodies(entity, keys).items():
            read[entity, id, key] = row
    return [
        _found(hit, read.get((hit.entity, hit.id, hit.newest)) if hit.newest else None)
        for hit in wanted
    ]


def _found(hit: Hit, row: VersionRow | None) -> Found | None:
    if row is None and hit.newest is not None:
        return None
    return Found(
        entity=hit.entity,
        id=hit.id,
        application=None
        if hit.entity.alone
        else (row.product_instance_id if row else None) or hit.id,
        key=hit.key,
        carriers=hit.carriers,
        version=row.version if row else None,
        type=ChangeType(row.type) if row else None,
        updated_at=hit.updated_at,
        data=parse(row.data) if row else None,
    )
