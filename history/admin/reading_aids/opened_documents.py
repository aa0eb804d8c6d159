"""Shows on the start page the documents that a login opened last: title, status, last change."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from django.http import HttpRequest

from history import timeline
from history.admin.components import (
    damage,
    links,
    open_messages,
    page_head,
)
from history.admin.components.cards import get_change_text, get_kind_title, make_field_names
from history.admin.components.headline import get_status, limit_to_title_fields
from history.admin.components.search_results import make_groups
from history.admin.reading_aids import sentences
from history.common import clock
from history.common.signals import opened_documents_requested
from history.kinds.entities import BY_NAME, ENTITIES
from history.policy import access_record
from history.policy.need_to_know import NeedToKnowError, RuleFailedError
from history.store.blocks.codec import DamagedBlockError
from history.store.versions import DamagedRef, EntityRef
from history.timeline import HistoryReader, Include, OpenMessagesQuestion, Version
from history.timeline.titles import get_headline

MAX_LINES = 6  # how many documents have a line; the others are links
# Lines say what changed only in documents up to this size. Comparing larger ones takes too long.
COMPARED_BYTES = 256 * 1024
CHANGES = frozenset({Include.CHANGES})


def make_recent_context(request: HttpRequest) -> dict[str, object]:
    """Return the start page's variables about documents that the login opened and may see.

    Returns:
        `recent`: A line for each of the MAX_LINES documents that were opened most recently.
        `others`: The kind, id, title and address of each document that was opened earlier.
        `client`: The client of the most recently opened document, with the client's applications.
            None if no client is known.
    """
    opened, access = _list_opened(request), access_record.get_access_record(request)
    access.listed = bool(opened)
    reader = limit_to_title_fields(timeline.make_request_reader(request.user, access))
    damage.attach_damage(request, reader)
    newest, before = opened[:MAX_LINES], opened[MAX_LINES:]
    last_versions = dict(_load_last_versions(reader, newest))
    client = _find_client(reader, next(iter(last_versions))) if last_versions else None
    visible = timeline.select_visible(reader, before)
    documents = timeline.fetch_newest_snapshots(reader, [*last_versions, *visible])
    deleted = timeline.find_without_snapshot(reader, [*last_versions])
    applications = [id for entity, id in last_versions if entity.root]
    messages = timeline.fetch_messages_for(
        reader, OpenMessagesQuestion(ENTITIES, list(last_versions), applications)
    )
    recent = [
        {
            "id": document.id,
            "kind": get_kind_title(document.entity),
            "url": links.build_landing_url(document.entity, document.id),
            "title": get_headline(documents.get(document)),
            "quarantine_mark": open_messages.format_mark(
                timeline.select_messages_about(document, messages)
            ),
            "status": ""
            if document in deleted
            else get_status(documents.get(document), make_field_names(document.entity)),
            **(_describe_last_change(version) if version else {}),
        }
        for document, version in _load_changes(reader, last_versions).items()
    ]
    older = [
        (
            get_kind_title(document.entity),
            document.id,
            get_headline(documents.get(document)) or document.id,
            links.build_landing_url(document.entity, document.id),
        )
        for document in before
        if document in visible
    ]
    return {"recent": recent, "others": older, "client": client}


def _list_opened(request: HttpRequest) -> list[EntityRef]:
    """Return the documents that the login opened, most recently opened first.

    They were opened in this session or in earlier ones.
    """
    opened = dict.fromkeys(page_head.list_opened(request))
    answers: Iterable[tuple[Any, Any]] = opened_documents_requested.send(None, user=request.user)
    for _receiver, before in answers:
        opened |= {EntityRef(BY_NAME[name], id): None for name, id in before if name in BY_NAME}
    return list(opened)[: page_head.MAX_OPENED]


def _load_last_versions(
    page_reader: HistoryReader, documents: Iterable[EntityRef]
) -> Iterator[tuple[EntityRef, Version | None]]:
    """Yield each document with its newest version, or None if the store does not have one.

    For an application, this is the newest version of the application and its children. A document
    is left out if need-to-know does not let the login see it any more.
    """
    for document in documents:
        viewer = replace(page_reader.viewer, access=access_record.AccessRecord())
        reader = replace(page_reader, viewer=viewer).omit_snapshots()
        conditions: dict[str, Any] = {"page_size": 1, "include": frozenset()}
        try:
            [last] = page_head.fetch_page(
                reader, document.entity, document.id, whole=document.entity.root, **conditions
            ).versions
        except timeline.NotFoundError:
            yield document, None
        except DamagedBlockError as error:
            # A login that may not see the document gets another error before this one.
            page_reader.damaged[DamagedRef(*document, None)] = error
            yield document, None
        except (NeedToKnowError, RuleFailedError):
            closed = (
                application
                for application in viewer.access.applications
                if not viewer.decided.get(application)
            )
            page_reader.viewer.access.note_left_out(closed)
        else:
            page_reader.viewer.access.note_read(viewer.access.applications)
            yield document, last


def _load_changes(
    reader: HistoryReader, last: Mapping[EntityRef, Version | None]
) -> dict[EntityRef, Version | None]:
    """Load the changes of those versions in `last` that have a small snapshot.

    Returns a copy of `last`. Versions with a larger snapshot stay without changes.
    """
    versions = dict(last)
    whole = replace(reader, fields=None)
    compared = {
        opened: version
        for opened, version in last.items()
        if version is not None and version.previous_version is not None
    }
    documents = {version.entity_ref for version in compared.values()}
    sizes = reader.store_lists.measure_newest_snapshots(documents, COMPARED_BYTES)
    for opened, version in compared.items():
        if sizes[version.entity_ref] <= COMPARED_BYTES:
            # Retention has just removed the version, or it cannot be read: the line has no change.
            with suppress(timeline.NotFoundError, DamagedBlockError):
                versions[opened] = timeline.fetch_version(
                    whole,
                    version.entity,
                    version.id,
                    version.version,
                    CHANGES,
                    version.updated_at,
                )
    return versions


def _describe_last_change(last: Version) -> dict[str, object]:
    # Without the row of the whole document, whose path is empty.
    plain = [row for row in sentences.make_rows(last).plain if row.path]
    return {
        "at": last.updated_at,
        "who": page_head.get_maker_name(last),
        "what": sentences.describe_change(plain[0]) if plain else get_change_text(last.type),
        "more": max(0, len(plain) - 1),
    }


def _find_client(reader: HistoryReader, document: EntityRef) -> dict[str, object] | None:
    try:
        numbers = dict.fromkeys(_find_client_numbers(reader, document))
    except (timeline.NotFoundError, NeedToKnowError, RuleFailedError, DamagedBlockError):
        return None
    for number in numbers:
        [group] = make_groups(reader, {number: timeline.search(reader, number, MAX_LINES)})
        if group.hits:
            return {"number": number, "hits": group.hits}
    return None


def _find_client_numbers(reader: HistoryReader, document: EntityRef) -> Iterator[str]:
    """Yield the client numbers in the newest version of an application and its children.

    For a child, yield only the client numbers in the child.
    """
    entity, id = document
    if entity.root:
        documents = [
            (child.entity, child.data)
            for child in timeline.fetch_application_at(
                reader, id, clock.now(), page_head.MOST_PARTS
            ).children
        ]
    else:
        documents = [(entity, timeline.fetch_newest_version(reader, entity, id).data)]
    for kind, data in documents:
        yield from page_head.find_client_numbers(reader, kind, data)
