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

from history.documents.exactjson import Json
from history.documents.record import ChangeType
from history.kinds.entities import (
    BY_NAME,
    CHILDREN,
    ENTITIES,
    SEARCH_VALUE_LENGTH,
    EntityKind,
    get_root,
)
from history.policy import need_to_know
from history.policy.masking.mask import list_searchable_keys
from history.store.quarantined_messages import NO_OPEN_MESSAGES, OpenMessages, QuarantinedMessage
from history.store.search_index.keys import list_stored_values
from history.store.versions import (
    EntityRef,
    NewestVersion,
    VersionKey,
    VersionRow,
    parse_snapshot,
)
from history.timeline import open_messages
from history.timeline.open_messages import OpenMessagesQuestion
from history.timeline.page_token import issue_token, read_token
from history.timeline.query import (
    DEFAULT_PAGE_SIZE,
    EPOCH,
    BadParameterError,
    is_storable_id,
)
from history.timeline.reader import HistoryReader
from history.timeline.version_index import fetch_all_versions

ID_KEY = "id"
# Of the documents with one value, only those that were seen last are looked at: for each of them
# the newest version is looked up in every day.
MAX_DOCUMENTS = 1_000
# Bytes that name a hit in a page token: two of MAX_DOCUMENTS have the same ones once in two million
# searches.
MARK_BYTES = 5


@dataclass(frozen=True)
class SearchResult:
    """An entity with the id, or an application with the business key."""

    entity: EntityKind
    id: str
    key: str  # name of the business key, or ID_KEY
    # key of its newest version; None for an application with only children
    newest: VersionKey | None
    # of that version, or of the newest one of the carriers; for an id, of the children
    updated_at: datetime
    carriers: tuple[EntityRef, ...] = ()  # the documents with the key; none for an id
    row: VersionRow | None = None  # the newest version, once it is read

    @property
    def entity_ref(self) -> EntityRef:
        return self.entity, self.id

    @property
    def position(self) -> tuple[object, ...]:
        """The sort key of the result: ids first by kind, then keys, the newest change first."""
        if self.key == ID_KEY:
            return (0, ENTITIES.index(self.entity), self.id)
        return (1, EPOCH - self.updated_at, self.id)

    @property
    def mark(self) -> bytes:
        """The bytes that name the result in a page token."""
        return blake2b(f"{self.entity.name} {self.id}".encode(), digest_size=MARK_BYTES).digest()

    @property
    def application(self) -> str | None:
        """The id of its application, its own if it is one; None for a kind that stands alone."""
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
        return parse_snapshot(self.row.data) if self.row else None


class SearchPage(NamedTuple):
    """One page of search results, each once.

    Entities with the id come first, in the order of ENTITIES; then applications with the key, the
    newest change first.
    """

    found: Sequence[SearchResult]
    limited: bool  # more documents than MAX_DOCUMENTS have the key; the others were not looked at
    next_token: str | None = None  # None at the end


def search(
    reader: HistoryReader, text: str, size: int = DEFAULT_PAGE_SIZE, page_token: str | None = None
) -> SearchPage:
    """Return one page of what has this id, or exactly this value of a business key.

    Each page has the newest results that were on no earlier page, which the token says. So nothing
    is lost or repeated while versions arrive. Runs a fixed number of queries.

    Raises:
        BadParameterError: The text cannot be an id or a key, or the token is wrong.
    """
    if not is_storable_id(text, SEARCH_VALUE_LENGTH):
        reason = _("must have 1 to {n} characters")
        raise BadParameterError("q", reason.format(n=SEARCH_VALUE_LENGTH))
    binding = ("search", text, "marks")
    marks = b"" if page_token is None else b64decode(read_token(binding, page_token)[0])
    shown_marks = {marks[start : start + MARK_BYTES] for start in range(0, len(marks), MARK_BYTES)}
    results = _find_results(reader, [text])[text]
    unshown = [hit for hit in results.found if hit.mark not in shown_marks]
    next_token = None
    if len(unshown) > size:
        marks += b"".join(hit.mark for hit in unshown[:size])
        next_token = issue_token(binding, (b64encode(marks).decode(),))
    return _load_newest_versions(
        reader, {text: SearchPage(unshown[:size], results.limited, next_token)}
    )[text]


def search_all(
    reader: HistoryReader, texts: Sequence[str], size: int = DEFAULT_PAGE_SIZE
) -> dict[str, SearchPage]:
    """Return the first results of each text, without tokens. Runs as many queries as for one
    text.
    """
    empty_pages = dict.fromkeys(texts, SearchPage([], limited=False))
    pages = empty_pages | _find_results(
        reader, [text for text in texts if is_storable_id(text, SEARCH_VALUE_LENGTH)]
    )
    first_pages = {text: page._replace(found=page.found[:size]) for text, page in pages.items()}
    return _load_newest_versions(reader, first_pages)


def fetch_open_messages(reader: HistoryReader, results: Sequence[SearchResult]) -> OpenMessages:
    """Return the messages in quarantine about the results, and about children of the applications.

    Runs one query; three if children have messages that do not name their application.
    """
    if not results:
        return NO_OPEN_MESSAGES
    applications = [result.id for result in results if result.entity.root]
    return open_messages.fetch_messages_for(
        reader,
        OpenMessagesQuestion(ENTITIES, [result.entity_ref for result in results], applications),
    )


def select_messages_about(
    entity_ref: EntityRef, messages: OpenMessages
) -> list[QuarantinedMessage]:
    """Return the messages about a document; about an application, also those about its children."""
    entity, id = entity_ref
    if entity.root:
        return messages.list_of_application(entity.name, id)
    return messages.list_about(entity.name, id)


def fetch_newest_documents(
    reader: HistoryReader, carriers: Collection[EntityRef]
) -> dict[EntityRef, Json]:
    """Return the newest snapshot of each document that the store has. One query for each kind.

    The snapshot of a deleted document may be older than its newest version.
    """
    documents: dict[EntityRef, Json] = {}
    for entity in ENTITIES:
        rows = reader.lists.fetch_newest_documents(entity, _list_ids(entity, carriers))
        for row in reader.policy.apply(rows):
            documents[entity, row.id] = parse_snapshot(row.data)
    return documents


def find_without_document(reader: HistoryReader, carriers: Collection[EntityRef]) -> set[EntityRef]:
    """Return the documents whose newest version is a deletion without a snapshot."""
    newest = _fetch_newest_keys(reader, carriers)
    lists = reader.omit_documents().lists
    rows = {
        (entity, row.id): row.key
        for entity in ENTITIES
        for row in reader.policy.apply(
            lists.fetch_newest_documents(entity, _list_ids(entity, carriers))
        )
    }
    return {
        carrier
        for carrier, newest_version in newest.items()
        if rows.get(carrier) != newest_version.key
    }


def _load_newest_versions(
    reader: HistoryReader, results: Mapping[str, SearchPage]
) -> dict[str, SearchPage]:
    """Return the same pages with the newest version of each result.

    Results that retention has just removed are left out.
    """
    hits = [hit for page in results.values() for hit in page.found]
    wanted = {(*hit.entity_ref, hit.newest) for hit in hits if hit.newest}
    rows = fetch_all_versions(reader, wanted, as_list=True)
    rows_by_entity = {ref[:2]: row for ref, row in rows.items()}
    return {
        text: page._replace(
            found=[
                replace(hit, row=rows_by_entity.get(hit.entity_ref))
                for hit in page.found
                if hit.newest is None or hit.entity_ref in rows_by_entity
            ]
        )
        for text, page in results.items()
    }


def _find_results(reader: HistoryReader, texts: Sequence[str]) -> dict[str, SearchPage]:
    """Return all results of each text, without their versions. The number of queries is fixed."""
    if not texts:
        return {}
    results: dict[str, dict[EntityRef, SearchResult]] = {text: {} for text in texts}
    # Keys that are masked for the reader find nothing: the number of hits would tell who has a
    # value.
    values = {text: list_stored_values(text) for text in texts}
    hits = reader.lists.fetch_search_hits(
        texts=list(dict.fromkeys(value for forms in values.values() for value in forms)),
        ids=list(filter(is_storable_id, texts)),
        keys=list_searchable_keys(reader.viewer),
        limit=MAX_DOCUMENTS + 1,
    )
    documents = _of_texts(values, hits.documents)
    for entity in ENTITIES:
        for id, newest in hits.newest[entity].items():
            results[id][entity, id] = SearchResult(entity, id, ID_KEY, newest, newest.updated_at)
    for id, moment in hits.children.items():
        results[id].setdefault((get_root(), id), SearchResult(get_root(), id, ID_KEY, None, moment))
    for text, result in _generate_key_results(reader, documents):
        results[text].setdefault(result.entity_ref, result)
    results = _drop_hidden_results(reader, results)
    counts = Counter(text for text, *_ in documents)
    return {
        text: SearchPage(
            sorted(results_of_text.values(), key=attrgetter("position")),
            counts[text] > MAX_DOCUMENTS,
        )
        for text, results_of_text in results.items()
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


def _generate_key_results(
    reader: HistoryReader, rows: Iterable[tuple[str, str, str, str]]
) -> Iterator[tuple[str, SearchResult]]:
    """Generate the results for documents that have a business key.

    A result is the application of the document, or a document that stands alone. A child belongs to
    the application that its newest version names; without a kept version it belongs to none.

    Args:
        rows: Value, key name, kind and id.
    """
    documents = sorted(
        ((value, name, BY_NAME[kind], id) for value, name, kind, id in rows),
        key=lambda document: (document[1], ENTITIES.index(document[2]), document[3]),
    )
    newest = _fetch_newest_keys(
        reader, {(entity, id) for *_, entity, id in documents if entity.parent}
    )
    grouped: defaultdict[tuple[str, EntityRef], dict[EntityRef, str]] = defaultdict(dict)
    for value, name, entity, id in documents:
        carrier = entity, id
        if entity.parent is None:
            grouped[value, carrier].setdefault(carrier, name)
        elif carrier in newest:
            owner = get_root(), newest[carrier].application
            grouped[value, owner].setdefault(carrier, name)
    newest |= _fetch_newest_keys(reader, {owner for _value, owner in grouped})
    for (value, owner), names in grouped.items():
        own_version = newest.get(owner)
        versions = (
            [own_version] if own_version else [newest[child] for child in names if child in newest]
        )
        if versions:
            moment = max(version.key.updated_at for version in versions)
            key, first_name = own_version.key if own_version else None, next(iter(names.values()))
            yield value, SearchResult(*owner, first_name, key, moment, tuple(names))


def _fetch_newest_keys(
    reader: HistoryReader, entity_refs: Collection[EntityRef]
) -> dict[EntityRef, NewestVersion]:
    return {
        (entity, id): newest_version
        for entity in ENTITIES
        for id, newest_version in reader.lists.fetch_newest_keys(
            entity, _list_ids(entity, entity_refs)
        ).items()
    }


def _drop_hidden_results(
    reader: HistoryReader, results: dict[str, dict[EntityRef, SearchResult]]
) -> dict[str, dict[EntityRef, SearchResult]]:
    """Return the results that the viewer may see.

    The others are dropped before pages are made: so no page has a gap, and no count tells of them.
    """
    hits = [hit for results_of_text in results.values() for hit in results_of_text.values()]
    visible_refs = select_visible(
        reader, {entity_ref for hit in hits for entity_ref in (hit.entity_ref, *hit.carriers)}
    )
    return {
        text: {
            entity_ref: replace(
                hit, carriers=tuple(filter(visible_refs.__contains__, hit.carriers))
            )
            for entity_ref, hit in results_of_text.items()
            if entity_ref in visible_refs
            and (not hit.carriers or visible_refs.intersection(hit.carriers))
        }
        for text, results_of_text in results.items()
    }


def select_visible(reader: HistoryReader, entity_refs: Collection[EntityRef]) -> set[EntityRef]:
    """Return those of the entities that the viewer may see. For lists."""
    if not need_to_know.is_rule_applied(reader.viewer):
        return set(entity_refs)
    owners = {
        (entity, id): {id} if entity.root else set[str]()
        for entity, id in entity_refs
        if entity.parent is None
    }
    for entity in CHILDREN:
        if ids := _list_ids(entity, entity_refs):
            owners_by_id = reader.lists.fetch_owners(entity, ids)
            owners |= {(entity, id): applications for id, applications in owners_by_id.items()}
    allowed = reader.policy.select_visible(set().union(*owners.values()))
    return {entity_ref for entity_ref, applications in owners.items() if applications <= allowed}


def _list_ids(entity: EntityKind, entity_refs: Iterable[EntityRef]) -> set[str]:
    """Return the ids of the entities of one kind."""
    return {id for kind, id in entity_refs if kind is entity}
