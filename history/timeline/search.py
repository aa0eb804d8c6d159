"""Search by id, or by a business key that any version of a document had.

Begin with `search`. A search by id finds documents and applications. A search by business key
finds the applications to which the documents with the key belong.
"""

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
    VersionRef,
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
# How many documents with one value of a business key are read: the ones that had the value last.
# More would take long: for each document, PostgreSQL searches every day for the newest version.
MAX_DOCUMENTS = 1_000
# How many bytes stand for a result in a page token. That two of MAX_DOCUMENTS results have the same
# bytes happens once in two million searches.
DIGEST_BYTES = 5


@dataclass(frozen=True)
class SearchResult:
    """One result of a search.

    In a search by id, it is the document that has the id. In a search by business key, it is an
    application that has the key, or that has a child with the key. It can also be a document that
    stands alone and has the key.
    """

    entity: EntityKind
    id: str
    key: str  # the name of the business key, or ID_KEY
    # the key of the newest version; None for an application if only children are stored
    newest: VersionKey | None
    # the moment of the newest version; if `newest` is None, the moment of a child's newest version
    updated_at: datetime
    # the documents that have the business key: the result or its children; empty in a search by id
    carriers: tuple[EntityRef, ...] = ()
    row: VersionRow | None = None  # the newest version; None until it is read

    @property
    def entity_ref(self) -> EntityRef:
        """The document or application that was found."""
        return EntityRef(self.entity, self.id)

    @property
    def position(self) -> tuple[object, ...]:
        """The sort key of the result.

        Results of a search by id come first, in the order of kinds. Results of a search by business
        key follow: the application with the latest change is the first of them.
        """
        if self.key == ID_KEY:
            return (0, ENTITIES.index(self.entity), self.id)
        return (1, EPOCH - self.updated_at, self.id)

    @property
    def digest(self) -> bytes:
        """The bytes that identify the result in a page token: a digest of its kind and id."""
        return blake2b(f"{self.entity.name} {self.id}".encode(), digest_size=DIGEST_BYTES).digest()

    @property
    def application(self) -> str | None:
        """The id of the application of the result; None for a document that stands alone."""
        if self.entity.is_standalone:
            return None
        return (self.row.product_instance_id if self.row else None) or self.id

    @property
    def version(self) -> int | None:
        """The number of the newest version; None until it was read."""
        return self.row.version if self.row else None

    @property
    def type(self) -> ChangeType | None:
        """The type of the newest version; None until it was read."""
        return ChangeType(self.row.type) if self.row else None

    @cached_property
    def data(self) -> Json:
        """The parsed snapshot of the newest version; None until it was read."""
        return parse_snapshot(self.row.data) if self.row else None


class SearchPage(NamedTuple):
    """One page of search results.

    Documents that have the searched text as their id come first, in the order of ENTITIES.
    Applications that have it as a business key follow, the newest change first.
    """

    results: Sequence[SearchResult]
    limited: bool  # more than MAX_DOCUMENTS documents have the key, and only so many were read
    next_token: str | None = None  # None on the last page


def search(
    reader: HistoryReader, text: str, size: int = DEFAULT_PAGE_SIZE, page_token: str | None = None
) -> SearchPage:
    """Return one page of the results for an id, or for the exact value of a business key.

    Each page has the first results, in the order of `SearchResult.position`, that were on no
    earlier page. The token has the digests of all results that were shown. So a version that
    arrives between two pages does not make a result disappear or come twice. Runs a fixed number of
    queries.

    Raises:
        BadParameterError: The text cannot be an id or a key, or the token is wrong.
    """
    if not is_storable_id(text, SEARCH_VALUE_LENGTH):
        reason = _("must have 1 to {n} characters")
        raise BadParameterError("q", reason.format(n=SEARCH_VALUE_LENGTH))
    binding = ("search", text, "marks")
    digests = b"" if page_token is None else b64decode(read_token(binding, page_token)[0])
    shown_digests = {
        digests[start : start + DIGEST_BYTES] for start in range(0, len(digests), DIGEST_BYTES)
    }
    all_results = _find_results(reader, [text])[text]
    unshown = [result for result in all_results.results if result.digest not in shown_digests]
    next_token = None
    if len(unshown) > size:
        digests += b"".join(result.digest for result in unshown[:size])
        next_token = issue_token(binding, (b64encode(digests).decode(),))
    page = SearchPage(unshown[:size], all_results.limited, next_token)
    return _load_newest_versions(reader, {text: page})[text]


def search_all(
    reader: HistoryReader, texts: Sequence[str], size: int = DEFAULT_PAGE_SIZE
) -> dict[str, SearchPage]:
    """Return the first page of results for each text, without tokens.

    Runs as many queries as for one text.
    """
    empty_pages = dict.fromkeys(texts, SearchPage([], limited=False))
    pages = empty_pages | _find_results(
        reader, [text for text in texts if is_storable_id(text, SEARCH_VALUE_LENGTH)]
    )
    first_pages = {text: page._replace(results=page.results[:size]) for text, page in pages.items()}
    return _load_newest_versions(reader, first_pages)


def fetch_open_messages(reader: HistoryReader, results: Sequence[SearchResult]) -> OpenMessages:
    """Return the open messages about the documents in `results`.

    For an application in `results`, open messages about the children of the application are
    returned, too. Runs one query, or three queries if there might be messages about children that
    do not name their application.
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
    """Return the messages about a document. For an application, include its children."""
    entity, id = entity_ref
    if entity.root:
        return messages.list_of_application(entity.name, id)
    return messages.list_about(entity.name, id)


def fetch_newest_snapshots(
    reader: HistoryReader, documents: Collection[EntityRef]
) -> dict[EntityRef, Json]:
    """Return the newest snapshot of each document. Runs one query for each kind.

    If the newest version is a deletion without a snapshot, the snapshot before it is returned.
    """
    snapshots: dict[EntityRef, Json] = {}
    for entity in ENTITIES:
        rows = reader.store_lists.fetch_newest_snapshots(entity, _list_ids(entity, documents))
        for row in reader.policy.apply(rows):
            snapshots[row.entity_ref] = parse_snapshot(row.data)
    return snapshots


def find_without_snapshot(
    reader: HistoryReader, documents: Collection[EntityRef]
) -> set[EntityRef]:
    """Return the documents for which the newest version is a deletion without a snapshot."""
    newest = _fetch_newest_keys(reader, documents)
    lists = reader.omit_snapshots().store_lists
    rows = {
        row.entity_ref: row.key
        for entity in ENTITIES
        for row in reader.policy.apply(
            lists.fetch_newest_snapshots(entity, _list_ids(entity, documents))
        )
    }
    return {
        document
        for document, newest_version in newest.items()
        if rows.get(document) != newest_version.key
    }


def _load_newest_versions(
    reader: HistoryReader, pages: Mapping[str, SearchPage]
) -> dict[str, SearchPage]:
    """Return the same pages, with the newest version of each result.

    A result is left out if retention has just removed its newest version.
    """
    refs = {
        VersionRef(result.entity, result.id, result.newest)
        for page in pages.values()
        for result in page.results
        if result.newest
    }
    rows = fetch_all_versions(reader, refs, skip_damaged=True)
    rows_by_entity = {ref.entity_ref: row for ref, row in rows.items()}
    return {
        text: page._replace(
            results=[
                replace(result, row=rows_by_entity.get(result.entity_ref))
                for result in page.results
                if result.newest is None or result.entity_ref in rows_by_entity
            ]
        )
        for text, page in pages.items()
    }


def _find_results(reader: HistoryReader, texts: Sequence[str]) -> dict[str, SearchPage]:
    """Return all results for each text, without their versions. The number of queries is fixed."""
    if not texts:
        return {}
    results: dict[str, dict[EntityRef, SearchResult]] = {text: {} for text in texts}
    stored_values = {text: list_stored_values(text) for text in texts}
    hits = reader.store_lists.fetch_search_hits(
        texts=list(dict.fromkeys(value for values in stored_values.values() for value in values)),
        ids=list(filter(is_storable_id, texts)),
        # Keys that are masked for the viewer are not searched: the number of results would tell
        # who has a value.
        keys=list_searchable_keys(reader.viewer),
        limit=MAX_DOCUMENTS + 1,
    )
    carriers = _match_texts(
        stored_values,
        [Carrier(hit.value, hit.name, BY_NAME[hit.kind], hit.id) for hit in hits.documents],
    )
    for entity in ENTITIES:
        for id, newest in hits.newest[entity].items():
            result = SearchResult(entity, id, ID_KEY, newest, newest.updated_at)
            results[id][result.entity_ref] = result
    for id, moment in hits.children.items():
        result = SearchResult(get_root(), id, ID_KEY, None, moment)
        results[id].setdefault(result.entity_ref, result)
    for text, result in _generate_key_results(reader, carriers):
        results[text].setdefault(result.entity_ref, result)
    visible_results = _drop_hidden_results(reader, results)
    counts = Counter(carrier.text for carrier in carriers)
    return {
        text: SearchPage(
            results=sorted(results_by_ref.values(), key=attrgetter("position")),
            limited=counts[text] > MAX_DOCUMENTS,
        )
        for text, results_by_ref in visible_results.items()
    }


class Carrier(NamedTuple):
    """A document that has the searched value in a business key."""

    text: str  # the searched text; before `_match_texts` the value that is stored
    key: str  # the name of the business key
    entity: EntityKind
    id: str

    @property
    def entity_ref(self) -> EntityRef:
        return EntityRef(self.entity, self.id)


def _match_texts(
    stored_values: Mapping[str, Sequence[str]], carriers: Iterable[Carrier]
) -> list[Carrier]:
    """Return copies of `carriers` in which `text` is the searched text, not the stored value.

    A value can be stored in two Unicode forms. A document that has both forms is returned once.

    Args:
        stored_values: For each searched text, the forms in which it can be stored.
        carriers: The documents that were found. `text` of each is the stored value.
    """
    carriers_by_value: defaultdict[str, list[Carrier]] = defaultdict(list)
    for carrier in carriers:
        carriers_by_value[carrier.text].append(carrier)
    matched = (
        carrier._replace(text=text)
        for text, values in stored_values.items()
        for value in values
        for carrier in carriers_by_value.get(value, ())
    )
    return list(dict.fromkeys(matched))


def _generate_key_results(
    reader: HistoryReader, carriers: Iterable[Carrier]
) -> Iterator[tuple[str, SearchResult]]:
    """Generate pairs of a searched text and a result for this text.

    A result is an application that has the text as a business key, or that has a child with this
    business key. A document that stands alone and has the business key is a result, too. A child
    belongs to the application that its newest version names. A child without a version in the store
    is left out.

    Args:
        carriers: The documents that have a searched text as a business key.
    """
    ordered = sorted(
        carriers, key=lambda carrier: (carrier.key, ENTITIES.index(carrier.entity), carrier.id)
    )
    newest = _fetch_newest_keys(
        reader, {carrier.entity_ref for carrier in ordered if carrier.entity.parent}
    )
    # By searched text and owner, the name of the key that each carrier has.
    keys_by_owner: defaultdict[tuple[str, EntityRef], dict[EntityRef, str]] = defaultdict(dict)
    for carrier in ordered:
        if carrier.entity.parent is None:
            owner = carrier.entity_ref
        elif carrier.entity_ref in newest:
            owner = EntityRef(get_root(), newest[carrier.entity_ref].application)
        else:
            continue
        keys_by_owner[carrier.text, owner].setdefault(carrier.entity_ref, carrier.key)
    newest |= _fetch_newest_keys(reader, {owner for _text, owner in keys_by_owner})
    for (text, owner), keys in keys_by_owner.items():
        own_version = newest.get(owner)
        versions = (
            [own_version] if own_version else [newest[child] for child in keys if child in newest]
        )
        if versions:
            result = SearchResult(
                entity=owner.entity,
                id=owner.id,
                key=next(iter(keys.values())),
                newest=own_version.key if own_version else None,
                updated_at=max(version.key.updated_at for version in versions),
                carriers=tuple(keys),
            )
            yield text, result


def _fetch_newest_keys(
    reader: HistoryReader, entity_refs: Collection[EntityRef]
) -> dict[EntityRef, NewestVersion]:
    return {
        EntityRef(entity, id): newest_version
        for entity in ENTITIES
        for id, newest_version in reader.store_lists.fetch_newest_keys(
            entity, _list_ids(entity, entity_refs)
        ).items()
    }


def _drop_hidden_results(
    reader: HistoryReader, results: dict[str, dict[EntityRef, SearchResult]]
) -> dict[str, dict[EntityRef, SearchResult]]:
    """Return the results that the viewer may see.

    Hidden results are dropped before pages are made, so that page sizes and counts do not reveal
    them.
    """
    all_refs = {
        entity_ref
        for results_by_ref in results.values()
        for result in results_by_ref.values()
        for entity_ref in (result.entity_ref, *result.carriers)
    }
    visible_refs = select_visible(reader, all_refs)
    return {
        text: {
            entity_ref: replace(
                result, carriers=tuple(filter(visible_refs.__contains__, result.carriers))
            )
            for entity_ref, result in results_by_ref.items()
            if entity_ref in visible_refs
            and (not result.carriers or visible_refs.intersection(result.carriers))
        }
        for text, results_by_ref in results.items()
    }


def select_visible(reader: HistoryReader, entity_refs: Collection[EntityRef]) -> set[EntityRef]:
    """Return the documents that the viewer may see."""
    if not need_to_know.is_rule_applied(reader.viewer):
        return set(entity_refs)
    owners = {
        entity_ref: {entity_ref.id} if entity_ref.entity.root else set[str]()
        for entity_ref in entity_refs
        if entity_ref.entity.parent is None
    }
    for entity in CHILDREN:
        if ids := _list_ids(entity, entity_refs):
            owners_by_id = reader.store_lists.fetch_owners(entity, ids)
            owners |= {
                EntityRef(entity, id): applications for id, applications in owners_by_id.items()
            }
    allowed = reader.policy.select_visible(set().union(*owners.values()))
    return {entity_ref for entity_ref, applications in owners.items() if applications <= allowed}


def _list_ids(entity: EntityKind, entity_refs: Iterable[EntityRef]) -> set[str]:
    """Return the ids of the documents that are of one kind."""
    return {id for kind, id in entity_refs if kind is entity}
