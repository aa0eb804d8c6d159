"""The results of a search, as the rows of a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from operator import attrgetter

from history import timeline
from history.admin.components import links, open_messages
from history.admin.components.cards import get_kind_title, make_field_names
from history.admin.components.headline import (
    ROLE,
    get_status,
    limit_to_title_fields,
)
from history.documents.exactjson import Json
from history.documents.record import ChangeType
from history.kinds.entities import ENTITIES, EntityKind
from history.store.quarantined_messages import OpenMessages
from history.store.versions import EntityRef
from history.timeline import HistoryReader, SearchPage, SearchResult
from history.timeline.titles import get_headline

BY_ID = "id"
MAX_CARRIERS = 3


@dataclass(frozen=True, slots=True)
class SearchGroup:
    """The hits for one text of a search.

    `limited` says that the search stopped at its limit: there may be further hits.
    """

    query: str
    hits: Sequence[Mapping[str, object]]
    next_token: str | None
    limited: bool


def make_groups(
    reader: HistoryReader, pages_by_text: Mapping[str, SearchPage]
) -> list[SearchGroup]:
    """Return the results for each text as table rows. Runs one query for each kind."""
    all_results = [result for page in pages_by_text.values() for result in page.results]
    entity_refs = {
        carrier
        for result in all_results
        for carrier in result.carriers[:MAX_CARRIERS]
        if carrier.entity.parent is not None
    }
    entity_refs |= {
        result.entity_ref for result in all_results if _is_deleted_without_snapshot(result)
    }
    documents = timeline.fetch_newest_snapshots(limit_to_title_fields(reader), entity_refs)
    latest = reader.store_lists.fetch_newest_child_moments(
        {result.id for result in all_results if result.entity.root}
    )
    messages = timeline.fetch_open_messages(reader, all_results)
    return [
        SearchGroup(
            text,
            [
                _make_hit(result, documents, messages)
                for result in _order_by_change(page.results, latest)
            ],
            page.next_token,
            page.limited,
        )
        for text, page in pages_by_text.items()
    ]


def get_key_title(entity: EntityKind, key: str) -> str:
    """Return the label of the field that has a business key, or the key if no label is known.

    If the field has no label in this kind, use its label in another kind with the same key.
    """
    labels = [
        make_field_names(kind).get_label(pointer)
        for kind in (entity, *ENTITIES)
        for name, pointer in kind.search
        if name == key
    ]
    return next((label for label in labels if label), key)


def _order_by_change(
    results: Sequence[SearchResult], latest: Mapping[str, datetime]
) -> list[SearchResult]:
    """Return the results in the order of SearchResult.position.

    A change of a child counts as a change of its application: the result for the application gets
    the moment of the change as its `updated_at`.

    Args:
        latest: By the id of an application, the moment of the last change of its children.
    """
    changed = {
        result.id: max(result.updated_at, latest.get(result.id, result.updated_at))
        for result in results
    }
    moved = (
        replace(result, updated_at=changed[result.id]) if result.entity.root else result
        for result in results
    )
    return sorted(moved, key=attrgetter("position"))


def _make_hit(
    result: SearchResult, documents: Mapping[EntityRef, Json], messages: OpenMessages
) -> dict[str, object]:
    """Return the template's variables for one result.

    `quarantine_mark` says how many changes of the document are in quarantine. `key` is the label of
    the business key that matched, or empty if the id matched. `carriers` has the text and address
    of each child that has the key. `application_url` is filled only for a child.
    """
    data = documents.get(result.entity_ref) if _is_deleted_without_snapshot(result) else result.data
    application = result.application if result.entity.parent is not None else None
    return {
        "kind": get_kind_title(result.entity),
        "id": result.id,
        "title": get_headline(data),
        "status": get_status(result.data, make_field_names(result.entity)),
        "key": "" if result.key == BY_ID else get_key_title(result.carriers[0].entity, result.key),
        "carriers": [
            _make_carrier_link(carrier, documents[carrier])
            for carrier in result.carriers
            if carrier in documents
        ],
        "deleted": result.type is ChangeType.DELETE,
        "quarantine_mark": open_messages.format_mark(
            timeline.select_messages_about(result.entity_ref, messages)
        ),
        "url": links.build_landing_url(result.entity, result.id),
        "application_url": links.build_application_url(application) if application else "",
        "updated_at": result.updated_at,
    }


def _is_deleted_without_snapshot(result: SearchResult) -> bool:
    """Return whether the newest version is a deletion without a snapshot."""
    return result.type is ChangeType.DELETE and result.data is None


def _make_carrier_link(carrier: EntityRef, data: Json) -> tuple[str, str]:
    entity, id = carrier
    role = (
        make_field_names(entity).get_word("/role", str(data.get(ROLE)))
        if isinstance(data, dict)
        else ""
    )
    name = get_headline(data) or id
    return (f"{role or get_kind_title(entity)} {name}", links.build_timeline_url(entity, id))
