"""Search by id, or by a business key that any version of a document had: what has an id; or the
applications of the documents that have the key."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from hashlib import blake2b
from operator import attrgetter
from typing import NamedTuple

from django.utils.translation import gettext as _

from history import need_to_know
from history.documents.exactjson import Json
from history.entities import BY_NAME, CHILDREN, ENTITIES, SEARCH_VALUE_LENGTH, Entity, root
from history.held_messages import NO_OPEN_MESSAGES, OpenMessages, Quarantined
from history.record import ChangeType
from history.search_index.keys import stored_values
from history.timeline.gate import OpenQuestion, Reader
from history.timeline.query import (
    DEFAULT_PAGE_SIZE,
    EPOCH,
    BadParameterError,
    issue_token,
    read_token,
    storable,
)
from history.versions import Key, Named, Newest, VersionRow, parse

ID = "id"
# Of the documents with one value, only those that were seen last are looked at: for each of them
# the newest version is looked up in every day.
MAX_DOCUMENTS = 1_000
# Bytes that name a hit in a page token: two of MAX_DOCUMENTS have the same ones once in two million
# searches.
MARK = 5


@dataclass(frozen=True)
class Found:
    """An entity with the id, or an application with the business key.

    key: name of the business key, or ID. newest: key of its newest version; None for an application
    of which the store has only children. updated_at: of that version, or of the newest one of the
    carriers; for an id, of the children. carriers: the documents with the key; none for an id.
    row: the newest version, once it is read.
    """

    entity: Entity
    id: str
    key: str
    newest: Key | None
    updated_at: datetime
    carriers: tuple[Named, ...] = ()
    row: VersionRow | None = None

    @property
    def named(self) -> Named:
        return self.entity, self.id

    @property
    def position(self) -> tuple[object, ...]:
        """Its place in the results: ids by kind, then keys, the newest change first."""
        if self.key == ID:
            return (0, ENTITIES.index(self.entity), self.id)
        return (1, EPOCH - self.updated_at, self.id)

    @property
    def mark(self) -> bytes:
        """Names it in a page token."""
        return blake2b(f"{self.entity.name} {self.id}".encode(), digest_size=MARK).digest()

    @property
    def application(self) -> str | None:
        """The id of its application, its own for an application; None for a kind that stands
        alone."""
        if self.entity.alone:
            return None
        return (self.row.product_instance_id if self.row else None) or self.id

    @property
    def version(self) -> int | None:
        return self.row.version if self.row else None

    @property
    def type(self) -> ChangeType | None:
        return ChangeType(self.row.type) if self.row else None

    @cached_property
    def data(self) -> Json:
        return parse(self.row.data) if self.row else None


class Results(NamedTuple):
    """Entities with the id first, in the order of ENTITIES; then applications with the key, newest
    change first. Each is there once. limited: more documents have the key than MAX_DOCUMENTS, and
    only those seen last were looked at. next_token: None at the end."""

    found: Sequence[Found]
    limited: bool
    next_token: str | None = None


def search(
    reader: Reader, text: str, size: int = DEFAULT_PAGE_SIZE, page_token: str | None = None
) -> Results:
    """A page of what has this id, or this value of a business key, letter for letter. The Unicode
    form of a key does not matter: "й" can be one character or two.

    Each page has the newest of what was on no earlier one, which the token says, so nothing is lost
    or repeated while versions arrive. A fixed number of queries. Raises BadParameterError.
    """
    if not storable(text, SEARCH_VALUE_LENGTH):
        why = _("must have 1 to {n} characters")
        raise BadParameterError("q", why.format(n=SEARCH_VALUE_LENGTH))
    binding = ("search", text, "marks")
    marks = b"" if page_token is None else b64decode(read_token(binding, page_token)[0])
    shown = {marks[at : at + MARK] for at in range(0, len(marks), MARK)}
    found = _find(reader, [text])[text]
    rest = [hit for hit in found.found if hit.mark not in shown]
    following = None
    if len(rest) > size:
        marks += b"".join(hit.mark for hit in rest[:size])
        following = issue_token(binding, (b64encode(marks).decode(),))
    return _loaded(reader, {text: Results(rest[:size], found.limited, following)})[text]


def search_all(
    reader: Reader, texts: Sequence[str], size: int = DEFAULT_PAGE_SIZE
) -> dict[str, Results]:
    """The first results of each of these texts, without tokens. As many queries as for one."""
    nothing = dict.fromkeys(texts, Results([], limited=False))
    found = nothing | _find(reader, [text for text in texts if storable(text, SEARCH_VALUE_LENGTH)])
    first = {text: its._replace(found=its.found[:size]) for text, its in found.items()}
    return _loaded(reader, first)


def open_messages(reader: Reader, found: Sequence[Found]) -> OpenMessages:
    """Return the messages in quarantine about what was found, and about the children of the
    applications among it. One query; three where children have messages that do not name their
    application."""
    if not found:
        return NO_OPEN_MESSAGES
    applications = [each.id for each in found if each.entity.root]
    return reader.ask_open_messages(
        OpenQuestion(ENTITIES, [each.named for each in found], applications)
    )


def held_of(named: Named, messages: OpenMessages) -> list[Quarantined]:
    """Return those of these messages that are about a document; of an application also those about
    its children."""
    entity, id = named
    if entity.root:
        return messages.of_application(entity.name, id)
    return messages.about(entity.name, id)


def documents(reader: Reader, carriers: Collection[Named]) -> dict[Named, Json]:
    """The newest snapshots of these, without those of which the store has none. For a deleted one
    it may be older than its newest version. One query for each kind."""
    found: dict[Named, Json] = {}
    for entity in ENTITIES:
        for row in reader.newest_documents(entity, _of(entity, carriers)):
            found[entity, row.id] = parse(row.data)
    return found


def without_document(reader: Reader, carriers: Collection[Named]) -> set[Named]:
    """Return those of these whose newest version is a deletion that has no document."""
    newest = _newest(reader, carriers)
    rows = {
        (entity, row.id): row.key
        for entity in ENTITIES
        for row in reader.without_documents().newest_documents(entity, _of(entity, carriers))
    }
    return {carrier for carrier, its in newest.items() if rows.get(carrier) != its.key}


def _loaded(reader: Reader, results: Mapping[str, Results]) -> dict[str, Results]:
    """The same with the newest version of each; without what retention has just removed."""
    every = [hit for its in results.values() for hit in its.found]
    wanted = {(*hit.named, hit.newest) for hit in every if hit.newest}
    rows = reader.bodies(wanted, as_list=True)
    there = {place[:2]: row for place, row in rows.items()}
    return {
        text: its._replace(
            found=[
                replace(hit, row=there.get(hit.named))
                for hit in its.found
                if hit.newest is None or hit.named in there
            ]
        )
        for text, its in results.items()
    }


def _find(reader: Reader, texts: Sequence[str]) -> dict[str, Results]:
    """All results of each text, not loaded. The number of queries does not depend on the texts."""
    if not texts:
        return {}
    found: dict[str, dict[Named, Found]] = {text: {} for text in texts}
    # Keys that are masked for the reader find nothing: the number of hits would tell who has a
    # value.
    values = {text: stored_values(text) for text in texts}
    asked = reader.first(
        list(dict.fromkeys(value for forms in values.values() for value in forms)),
        list(filter(storable, texts)),
        MAX_DOCUMENTS + 1,
    )
    documents = _of_texts(values, asked.documents)
    for entity in ENTITIES:
        for id, newest in asked.newest[entity].items():
            found[id][entity, id] = Found(entity, id, ID, newest, newest.updated_at)
    for id, moment in asked.children.items():
        found[id].setdefault((root(), id), Found(root(), id, ID, None, moment))
    for text, its in _by_key(reader, documents):
        found[text].setdefault(its.named, its)
    found = _visible(reader, found)
    counts = Counter(text for text, *_ in documents)
    return {
        text: Results(
            sorted(those.values(), key=attrgetter("position")), counts[text] > MAX_DOCUMENTS
        )
        for text, those in found.items()
    }


def _of_texts(
    values: Mapping[str, Sequence[str]], rows: Iterable[tuple[str, str, str, str]]
) -> list[tuple[str, str, str, str]]:
    """Return the rows of the search keys with the searched text in place of the stored value.

    A document with a value in two Unicode forms is there once.
    """
    by_value = defaultdict(list)
    for value, *document in rows:
        by_value[value].append(document)
    return list(
        dict.fromkeys(
            (text, name, kind, id)
            for text, forms in values.items()
            for form in forms
            for name, kind, id in by_value.get(form, ())
        )
    )


def _by_key(
    reader: Reader, rows: Iterable[tuple[str, str, str, str]]
) -> Iterator[tuple[str, Found]]:
    """What is shown for the documents that have each value, given as value, key, kind and id: the
    application, or a document that stands alone.

    A child belongs to the application that its newest version names; one of which no version is
    kept belongs to none."""
    documents = sorted(
        ((value, name, BY_NAME[kind], id) for value, name, kind, id in rows),
        key=lambda each: (each[1], ENTITIES.index(each[2]), each[3]),
    )
    newest = _newest(reader, {(entity, id) for *_, entity, id in documents if entity.parent})
    grouped: defaultdict[tuple[str, Named], dict[Named, str]] = defaultdict(dict)
    for value, name, entity, id in documents:
        carrier = entity, id
        if entity.parent is None:
            grouped[value, carrier].setdefault(carrier, name)
        elif carrier in newest:
            place = root(), newest[carrier].application
            grouped[value, place].setdefault(carrier, name)
    newest |= _newest(reader, {place for _value, place in grouped})
    for (value, place), names in grouped.items():
        own = newest.get(place)
        known = [own] if own else [newest[each] for each in names if each in newest]
        if known:
            moment = max(each.key.updated_at for each in known)
            key, first = own.key if own else None, next(iter(names.values()))
            yield value, Found(*place, first, key, moment, tuple(names))


def _newest(reader: Reader, places: Collection[Named]) -> dict[Named, Newest]:
    return {
        (entity, id): its
        for entity in ENTITIES
        for id, its in reader.newest_keys(entity, _of(entity, places)).items()
    }


def _visible(reader: Reader, found: dict[str, dict[Named, Found]]) -> dict[str, dict[Named, Found]]:
    """The hits that the reader may see. The others are gone before pages are made of them,
    so that no page has a gap and no count tells of them."""
    hits = [hit for its in found.values() for hit in its.values()]
    shown = visible(reader, {place for hit in hits for place in (hit.named, *hit.carriers)})
    return {
        text: {
            place: replace(hit, carriers=tuple(filter(shown.__contains__, hit.carriers)))
            for place, hit in its.items()
            if place in shown and (not hit.carriers or shown.intersection(hit.carriers))
        }
        for text, its in found.items()
    }


def visible(reader: Reader, places: Collection[Named]) -> set[Named]:
    """Those of these that the reader may see; for lists."""
    if not need_to_know.applies(reader.viewer):
        return set(places)
    owners = {
        (entity, id): {id} if entity.root else set[str]()
        for entity, id in places
        if entity.parent is None
    }
    for entity in CHILDREN:
        if ids := _of(entity, places):
            known = reader.owners(entity, ids)
            owners |= {(entity, id): its for id, its in known.items()}
    allowed = reader.visible(set().union(*owners.values()))
    return {place for place, its in owners.items() if its <= allowed}


def _of(entity: Entity, places: Iterable[Named]) -> set[str]:
    """The ids of those of one kind."""
    return {id for kind, id in places if kind is entity}
