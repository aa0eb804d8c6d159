"""Search by id, or by a business key that any version of a document had."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.utils.translation import gettext as _

from history.entities import ENTITIES, SEARCH_VALUE_LENGTH, Entity
from history.exactjson import Json
from history.record import ChangeType
from history.timeline import hits, memory, paging, rows, shown, token
from history.timeline.hits import Carrier, Hit
from history.timeline.query import DEFAULT_PAGE_SIZE, BadParameterError
from history.timeline.statements import Key, VersionRow
from history.timeline.versions import parse


@dataclass(frozen=True, slots=True)
class Found:
    """An entity with the id, or an application with the business key.

    key: name of the business key, or hits.ID. carriers: the documents with the key; none for an id.
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
    key than hits.MAX_DOCUMENTS, and only those seen last were looked at."""

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
    found = hits.find([text])[text]
    before = shown.nothing(found.hits)
    if page_token is not None:
        before = shown.unpacked(*token.read(binding, page_token))
    rest = [hit for hit in found.hits if hit not in before]
    here, following = rest[:size], None
    if len(rest) > size:
        following = token.issue(binding, before.and_also(here).packed())
    return Results(_present(_load(here)), following, found.limited)


@memory.remembered()
def search_all(texts: Sequence[str], size: int = DEFAULT_PAGE_SIZE) -> dict[str, Results]:
    """The first results of each of these texts, without tokens. As many queries as for one."""
    found = hits.find([text for text in texts if searchable(text)])
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
