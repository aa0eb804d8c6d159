"""The head of a page about a document: its title, its status, and tabs to its other pages."""

from collections.abc import Collection, Iterator
from typing import Any, Literal, NamedTuple

from django.contrib import admin
from django.http import HttpRequest
from django.utils.translation import gettext as _

from history import timeline
from history.admin.components import links, open_messages, page_completeness
from history.admin.components.cards import get_kind_title, make_field_names
from history.admin.components.headline import (
    CLIENT,
    NamedDocument,
    find_shared_names,
    get_status,
    limit_to_title_fields,
)
from history.documents.exactjson import Json
from history.documents.record import ChangeType
from history.kinds.entities import (
    BY_NAME,
    CHILDREN,
    EntityKind,
    get_root,
)
from history.policy import masking
from history.store.versions import EntityRef, VersionKey
from history.timeline import (
    ApplicationState,
    HistoryReader,
    TimelinePage,
    TimelineQuery,
    Version,
)
from history.timeline.titles import get_headline

OPEN_CHILDREN = 6
MOST_PARTS = 200  # how many parts of an application a page reads
TabName = Literal["whole", "card", "state", "at"]


def make_context(
    request: HttpRequest,
    reader: HistoryReader,
    entity: EntityKind,
    id: str,
    newest: Version | None,
    *,
    tab: TabName = "card",
    name: str = "",
    is_past: bool = False,
    today: Version | None = None,
    last_child_change: Version | None = None,
) -> dict[str, object]:
    """Return the context that the templates of pages about a document need.

    Args:
        request: The request of the page.
        reader: Reads the document for its title.
        entity: The kind of the document.
        id: The id of the document.
        newest: The version that the head describes; None if the store does not have one.
        tab: The tab of the page.
        name: The name of the page, if it differs from the name of its tab.
        is_past: Whether the page shows the document as of a past moment. `newest` is then the
            version that was current at that moment.
        today: The version that is current now; None if the page did not read it.
        last_child_change: If the last change of an application was made in a child: the version
            of the child.
    """
    kind = get_kind_title(entity)
    tabs = _make_tabs(entity, id, tab)
    facts = _collect_facts(reader, newest, last_child_change or newest) if newest else {}
    status_now = _get_version_status(today) if today else ""
    if is_past and newest and status_now != _get_version_status(newest):
        facts |= {"then": True, "now": status_now}
    if last_child_change:
        facts["changed"] = get_kind_title(last_child_change.entity)
    now, merged = page_completeness.get_completeness(request), tab in ("whole", "at")
    heading = facts.get("title") or f"{kind} {id}"
    return {
        **admin.site.each_context(request),
        "complete": now.complete,
        "unstored": open_messages.make_notice(now.load_messages(reader), merged=merged),
        "title": f"{heading} · {name or next(tab.title for tab in tabs if tab.is_current)}",
        "subject": {
            "id": id,
            "kind": kind,
            "url": links.build_application_url(id)
            if tab == "whole"
            else links.build_timeline_url(entity, id),
            "own_url": links.build_timeline_url(entity, id),
            "compare_action": links.build_compare_url(entity, id),
            "tabs": tabs,
            "old_failed": reader.old_service.failed,
            **facts,
        },
    }


def fetch_page(
    reader: HistoryReader, entity: EntityKind, id: str, *, whole: bool, **query: Any
) -> TimelinePage:
    """Return a page of versions of a document; with `whole`, of an application and its children.

    The other arguments are fields of TimelineQuery.
    """
    return timeline.fetch_page(
        reader, TimelineQuery(entity=None if whole else entity, id=id, **query)
    )


def _collect_facts(reader: HistoryReader, newest: Version, last: Version) -> dict[str, object]:
    """Return the template's variables about the document.

    Args:
        reader: Reads the snapshot for the title of a deleted document.
        newest: The version that the head describes.
        last: The version that the head names as the last change.

    Returns:
        The variables. `compare_from` is the number of the version that the form offers to compare
        with `newest`. The variables that begin with `application_` are filled only for a child.
    """
    data = _load_title_snapshot(reader, newest)
    previous, application = newest.previous_version, newest.product_instance_id
    return {
        "title": get_headline(data),
        "status": get_status(data, make_field_names(newest.entity)),
        "deleted": newest.type is ChangeType.DELETE,
        "version": last.version,
        "updated_at": last.updated_at,
        "author": get_maker_name(last),
        "compare_from": newest.version if previous is None else previous,
        "application_id": application,
        "application_kind": get_kind_title(get_root()) if application else "",
        "application_url": links.build_application_url(application) if application else "",
    }


def _get_version_status(version: Version) -> str:
    if version.type is ChangeType.DELETE:
        return _("no longer exists")
    return get_status(version.data, make_field_names(version.entity))


def _load_title_snapshot(reader: HistoryReader, version: Version) -> Json:
    """Return the snapshot that has the title of a version's document.

    For a deletion without a snapshot this is the newest snapshot before it.
    """
    if version.data is not None:
        return version.data
    document = version.entity_ref
    return timeline.fetch_newest_snapshots(limit_to_title_fields(reader), [document]).get(document)


def get_maker_name(version: Version) -> str:
    """Return the name of the person, or else of the service, that made a version."""
    return (version.author or version.service).name


def find_client_numbers(reader: HistoryReader, entity: EntityKind, data: Json) -> Iterator[str]:
    """Yield the client numbers in a snapshot, if the viewer may search by them."""
    allowed = masking.list_searchable_keys(reader.viewer)
    for key, pointer in entity.search:
        value = data.get(pointer[1:]) if isinstance(data, dict) and key == CLIENT else None
        is_readable = isinstance(value, str | int) and not masking.is_token(str(value))
        if is_readable and f"{entity.name} {key}" in allowed:
            yield str(value)


def group_children(reader: HistoryReader, application: ApplicationState) -> list[dict[str, object]]:
    """Return a group of children for each kind, in the order of CHILDREN.

    Returns:
        For each group: `kind`, the title of the kind; `first`, the children that the page shows;
        `more`, the children that it folds. Deleted children come last. Each child has the key
        `same`: whether a second child in the group has the same title.
    """
    groups: list[dict[str, object]] = []
    deleted = [version.entity_ref for version in application.deleted if version.data is None]
    documents = timeline.fetch_newest_snapshots(limit_to_title_fields(reader), deleted)
    for entity in CHILDREN:
        rows = [
            {
                "title": get_headline(child.data or documents.get(child.entity_ref)) or child.id,
                "id": child.id,
                "client": next(find_client_numbers(reader, entity, child.data), ""),
                "url": links.build_timeline_url(entity, child.id),
                "deleted": child.type is ChangeType.DELETE,
            }
            for child in (*application.children, *application.deleted)
            if child.entity is entity
        ]
        shared_names = find_shared_names(
            NamedDocument(entity.name, str(row["title"]), str(row["id"])) for row in rows
        )
        for row in rows:
            row["same"] = (entity.name, row["title"]) in shared_names
        if rows:
            first, more = rows[:OPEN_CHILDREN], rows[OPEN_CHILDREN:]
            groups.append({"kind": get_kind_title(entity), "first": first, "more": more})
    return groups


class Tab(NamedTuple):
    """A tab in the head of a page."""

    title: str
    url: str
    is_current: bool


def _make_tabs(entity: EntityKind, id: str, current: TabName) -> list[Tab]:
    """Return the tabs of a document's pages. `current` is the tab of the page to show."""
    tabs: list[tuple[TabName, str, str]] = [
        (
            "card",
            _("Card only") if entity.root else _("History"),
            links.build_timeline_url(entity, id),
        ),
        ("state", _("Who changed which field"), links.build_state_url(entity, id)),
    ]
    if entity.root:
        tabs.insert(0, ("whole", _("Whole application"), links.build_application_url(id)))
        tabs.append(("at", _("As of a date"), links.build_moment_url(id)))
    return [Tab(text, url, name == current) for name, text, url in tabs]


def find_other_versions(
    keys: Collection[VersionKey], *versions: Version
) -> list[dict[str, object]]:
    """Return the versions that have the number of a shown version, but a different moment.

    They come in the order of number and moment.

    Args:
        keys: The keys of all versions of the document.
        versions: The shown versions.

    Returns:
        The template's variables for each of these versions. `compare_url` compares it with the
        shown version of the same number. `old`: the old service has this version. `from_old`: the
        shown version comes from the old service.
    """
    rows: list[dict[str, object]] = []
    for number in sorted({version.version for version in versions}):
        same_number = [version for version in versions if version.version == number]
        entity, id, from_old = (
            same_number[0].entity,
            same_number[0].id,
            any(version.is_from_old_service for version in same_number),
        )
        shown_moments = [version.updated_at for version in same_number]
        moments = {
            version.old_service_moment: True
            for version in same_number
            if version.old_service_moment
        }
        moments |= {key.updated_at: False for key in keys if key.version == number}
        for moment, old in sorted(moments.items()):
            if moment in shown_moments:
                continue
            older, newer = sorted([moment, shown_moments[-1]])
            rows.append(
                {
                    "version": number,
                    "updated_at": moment,
                    "url": links.build_snapshot_url(entity, id, number, moment),
                    "compare_url": links.build_comparison_url(
                        entity, id, (number, older), (number, newer)
                    ),
                    "old": old,
                    "from_old": from_old,
                }
            )
    return rows


OPENED_KEY = "opened"
MAX_OPENED = 20


def remember_opened(request: HttpRequest, entity: EntityKind, id: str) -> None:
    """Put a document first in the session's list of opened documents.

    The session is saved only if this changes the list.
    """
    before = request.session.get(OPENED_KEY, [])
    after = [[entity.name, id], *(entry for entry in before if entry != [entity.name, id])][
        :MAX_OPENED
    ]
    if after != before:
        request.session[OPENED_KEY] = after


def list_opened(request: HttpRequest) -> list[EntityRef]:
    """Return the documents that were opened in this session, most recently opened first."""
    entries = request.session.get(OPENED_KEY, [])
    return [EntityRef(BY_NAME[name], id) for name, id in entries if name in BY_NAME]
