"""The head of a page: which entity this is, its title and its status."""

from collections.abc import Collection, Iterator
from typing import Any, Literal

from django.contrib import admin
from django.http import HttpRequest
from django.utils.translation import gettext as _

from history import masking, timeline
from history.admin.parts import held, links, standing
from history.admin.parts.cards import fields_of, title
from history.admin.parts.headline import CLIENT, for_titles, headline, shared, status
from history.documents.exactjson import Json
from history.entities import BY_NAME, CHILDREN, Entity, root
from history.record import ChangeType
from history.timeline import (
    ApplicationState,
    Page,
    Query,
    Reader,
    Version,
)
from history.versions import Key, Named

OPEN_CHILDREN = 6
MOST_PARTS = 200  # of an application; a page reads no more
TabName = Literal["whole", "card", "state", "at"]


def context(
    request: HttpRequest,
    reader: Reader,
    entity: Entity,
    id: str,
    newest: Version | None,
    *,
    tab: TabName = "card",
    name: str = "",
    then: bool = False,
    today: Version | None = None,
    last: Version | None = None,
) -> dict[str, object]:
    """What the templates of the pages about an entity need. newest: None where the store has no
    version. tab: the page that is shown; name: what it is called, if not as its tab. then: newest
    is the one of that time; today: the newest one, where it was read. last: the version of
    a child to name instead."""
    kind = title(entity)
    tabs = _tabs(entity, id, tab)
    facts = _facts(reader, newest, last or newest) if newest else {}
    status_now = _status(today) if today else ""
    if then and newest and status_now != _status(newest):
        facts |= {"then": True, "now": status_now}
    if last:
        facts["changed"] = title(last.entity)
    now, merged = standing.of(request), tab in ("whole", "at")
    called = facts.get("title") or f"{kind} {id}"
    return {
        **admin.site.each_context(request),
        "complete": now.complete,
        "unstored": held.notice(now.messages(reader), merged=merged),
        "title": f"{called} · {name or next(text for text, _, shown in tabs if shown)}",
        "subject": {
            "id": id,
            "kind": kind,
            "url": links.application(id) if tab == "whole" else links.timeline(entity, id),
            "own_url": links.timeline(entity, id),
            "compare_action": links.compare(entity, id),
            "tabs": tabs,
            "old_failed": reader.old.failed,
            **facts,
        },
    }


def versions(reader: Reader, entity: Entity, id: str, *, whole: bool, **asked: Any) -> Page:
    """A page of its versions; whole: of an application and its children. asked: as in Query."""
    return timeline.page(reader, Query(entity=None if whole else entity, id=id, **asked))


def _facts(reader: Reader, newest: Version, last: Version) -> dict[str, object]:
    """last: the version to name. compare_from: what the form offers to compare with the newest one.
    application_id, application_kind, application_url: of a child, else empty."""
    data = _document(reader, newest)
    previous, application = newest.previous_version, newest.product_instance_id
    return {
        "title": headline(data),
        "status": status(data, fields_of(newest.entity)),
        "deleted": newest.type is ChangeType.DELETE,
        "version": last.version,
        "updated_at": last.updated_at,
        "author": changed_by(last),
        "compare_from": newest.version if previous is None else previous,
        "application_id": application,
        "application_kind": title(root()) if application else "",
        "application_url": links.application(application) if application else "",
    }


def _status(version: Version) -> str:
    if version.type is ChangeType.DELETE:
        return _("no longer exists")
    return status(version.data, fields_of(version.entity))


def _document(reader: Reader, version: Version) -> Json:
    """The snapshot of a version, for its heading; of a DELETE without one that of the newest
    version that has one."""
    if version.data is not None:
        return version.data
    carrier = (version.entity, version.id)
    return timeline.documents(for_titles(reader), [carrier]).get(carrier)


def changed_by(version: Version) -> str:
    """The name of the person, or of the service where there was no person."""
    return (version.author or version.service).name


def client_numbers(reader: Reader, entity: Entity, data: Json) -> Iterator[str]:
    """The numbers of clients in a document, of those that the reader may search by."""
    allowed = masking.searchable_keys(reader.viewer)
    for key, pointer in entity.search:
        value = data.get(pointer[1:]) if isinstance(data, dict) and key == CLIENT else None
        known = isinstance(value, str | int) and not masking.is_token(str(value))
        if known and f"{entity.name} {key}" in allowed:
            yield str(value)


def children(reader: Reader, application: ApplicationState) -> list[dict[str, object]]:
    """The children by kind, in the order of CHILDREN; deleted ones at the end. first: those that
    are shown at once; more: the others."""
    found: list[dict[str, object]] = []
    bare = [(each.entity, each.id) for each in application.deleted if each.data is None]
    documents = timeline.documents(for_titles(reader), bare)
    for entity in CHILDREN:
        theirs = [
            {
                "title": headline(child.data or documents.get((entity, child.id))) or child.id,
                "id": child.id,
                "client": next(client_numbers(reader, entity, child.data), ""),
                "url": links.timeline(entity, child.id),
                "deleted": child.type is ChangeType.DELETE,
            }
            for child in (*application.children, *application.deleted)
            if child.entity is entity
        ]
        same = shared((entity.name, str(each["title"]), str(each["id"])) for each in theirs)
        for each in theirs:
            each["same"] = (entity.name, each["title"]) in same
        if theirs:
            first, more = theirs[:OPEN_CHILDREN], theirs[OPEN_CHILDREN:]
            found.append({"kind": title(entity), "first": first, "more": more})
    return found


def _tabs(entity: Entity, id: str, shown: TabName) -> list[tuple[str, str, bool]]:
    """Title, address, and whether it is the page that is shown."""
    tabs: list[tuple[TabName, str, str]] = [
        ("card", _("Card only") if entity.root else _("History"), links.timeline(entity, id)),
        ("state", _("Who changed which field"), links.state(entity, id)),
    ]
    if entity.root:
        tabs.insert(0, ("whole", _("Whole application"), links.application(id)))
        tabs.append(("at", _("As of a date"), links.application_at(id)))
    return [(text, url, name == shown) for name, text, url in tabs]


def other_versions(keys: Collection[Key], *shown: Version) -> list[dict[str, object]]:
    """The versions with the numbers of these that are not shown, the older ones first. keys: all of
    the entity. compare_url: it and the last of these compared. old: it is the old service's.
    from_old: the one that is shown is."""
    found: list[dict[str, object]] = []
    for number in sorted({each.version for each in shown}):
        its = [each for each in shown if each.version == number]
        entity, id, from_old = its[0].entity, its[0].id, any(each.old for each in its)
        here = [each.updated_at for each in its]
        moments = {each.other_moment: True for each in its if each.other_moment}
        moments |= {key.updated_at: False for key in keys if key.version == number}
        for moment, old in sorted(moments.items()):
            if moment in here:
                continue
            older, newer = sorted([moment, here[-1]])
            found.append(
                {
                    "version": number,
                    "updated_at": moment,
                    "url": links.snapshot(entity, id, number, moment),
                    "compare_url": links.comparison(entity, id, (number, older), (number, newer)),
                    "old": old,
                    "from_old": from_old,
                }
            )
    return found


KEY = "opened"
MAX_OPENED = 20


def remember(request: HttpRequest, entity: Entity, id: str) -> None:
    """Put an entity first. The session is written only when the order changes."""
    before = request.session.get(KEY, [])
    after = [[entity.name, id], *(one for one in before if one != [entity.name, id])][:MAX_OPENED]
    if after != before:
        request.session[KEY] = after


def opened(request: HttpRequest) -> list[Named]:
    """What was opened last, newest first."""
    opened = request.session.get(KEY, [])
    return [(BY_NAME[name], id) for name, id in opened if name in BY_NAME]
