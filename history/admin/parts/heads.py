"""The head of a page: which entity this is, its title and its status."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from django.http import HttpRequest
from django.utils.translation import gettext as _

from history import fallback, timeline
from history.admin.parts import links
from history.admin.parts.cards import fields_of, title, utc
from history.admin.parts.headline import headline, status
from history.documents.exactjson import Json
from history.entities import BY_NAME, CHILDREN, Entity, root
from history.record import ChangeType
from history.timeline import Application, Carrier, Version

OPEN_CHILDREN = 6
TabName = Literal["whole", "card", "state", "at"]


@dataclass(frozen=True, slots=True)
class Tab:
    title: str
    url: str
    current: bool


@dataclass(frozen=True, slots=True)
class Child:
    """A child of an application. url: its timeline."""

    title: str
    url: str
    deleted: bool


@dataclass(frozen=True, slots=True)
class Children:
    """The children of one kind. first: those that are shown at once; more: the others."""

    kind: str
    first: Sequence[Child]
    more: Sequence[Child]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """url: the page itself without any filter. application_id: of a child, else empty. old_failed:
    the old service did not answer, so that versions may be missing on the page."""

    entity: Entity
    id: str
    kind: str
    title: str
    status: str
    deleted: bool
    version: int | None
    updated_at: datetime | None
    utc: str
    author: str
    url: str
    compare_action: str
    compare_from: int
    application_id: str
    application_kind: str
    application_url: str
    tabs: Sequence[Tab]
    old_failed: bool


def subject(entity: Entity, id: str, newest: Version | None, *, tab: TabName = "card") -> Subject:
    """newest: None where the store has no version. tab: the page that is shown."""
    data = _document(newest) if newest else None
    application = (newest.product_instance_id if newest else None) or ""  # of a child
    return Subject(
        entity=entity,
        id=id,
        kind=title(entity),
        title=headline(data),
        status=status(data, fields_of(entity)),
        deleted=newest is not None and newest.type is ChangeType.DELETE,
        version=newest.version if newest else None,
        updated_at=newest.updated_at if newest else None,
        utc=utc(newest.updated_at) if newest else "",
        author=changed_by(newest) if newest else "",
        url=links.application(id) if tab == "whole" else links.timeline(entity, id),
        compare_action=links.compare(entity, id),
        compare_from=_compare_from(newest),
        application_id=application,
        application_kind=title(root()) if application else "",
        application_url=links.application(application) if application else "",
        tabs=_tabs(entity, id, tab),
        old_failed=fallback.failed(),
    )


def _document(version: Version) -> Json:
    """The snapshot of a version, for its heading; of a DELETE without one that of the newest
    version that has one."""
    if version.data is not None:
        return version.data
    carrier = Carrier(version.entity, version.id)
    return timeline.documents([carrier]).get(carrier)


def changed_by(version: Version) -> str:
    """The name of the person, or of the service where there was no person."""
    return (version.author or version.service).name


def _compare_from(newest: Version | None) -> int:
    """The version that the form offers to compare with the newest one."""
    if newest is None:
        return 0
    return newest.version if newest.previous_version is None else newest.previous_version


def children(application: Application) -> list[Children]:
    """The children by kind, in the order of CHILDREN; deleted ones at the end. At most one query
    for each kind."""
    found = []
    bare = [Carrier(each.entity, each.id) for each in application.deleted if each.data is None]
    documents = timeline.documents(bare)
    for entity in CHILDREN:
        theirs = [
            Child(
                headline(child.data or documents.get(Carrier(entity, child.id))) or child.id,
                links.timeline(entity, child.id),
                child.type is ChangeType.DELETE,
            )
            for child in (*application.children, *application.deleted)
            if child.entity is entity
        ]
        if theirs:
            found.append(Children(title(entity), theirs[:OPEN_CHILDREN], theirs[OPEN_CHILDREN:]))
    return found


def _tabs(entity: Entity, id: str, current: TabName) -> list[Tab]:
    found = [
        Tab(
            _("Card only") if entity.root else _("History"),
            links.timeline(entity, id),
            current == "card",
        ),
        Tab(_("Who changed which field"), links.state(entity, id), current == "state"),
    ]
    if entity.root:
        found.insert(0, Tab(_("Whole application"), links.application(id), current == "whole"))
        found.append(Tab(_("At a moment"), links.application_at(id), current == "at"))
    return found


@dataclass(frozen=True, slots=True)
class Twin:
    """Another version with the number of the one that is shown. url: its snapshot. compare_url:
    the older and the younger one compared. old: it is the old service's. from_old: the one
    that is shown is."""

    version: int
    updated_at: datetime
    utc: str
    url: str
    compare_url: str
    old: bool
    from_old: bool


def other_versions(entity: Entity, id: str, number: int, shown: Collection[datetime]) -> list[Twin]:
    """The versions with a number that are not shown, the older ones first."""
    twins = timeline.twins(entity, id, number)
    from_old = any(twin.old for twin in twins if twin.updated_at in shown)
    return [
        Twin(
            number,
            twin.updated_at,
            utc(twin.updated_at),
            links.snapshot(entity, id, number, twin.updated_at),
            _comparison(entity, id, number, sorted([twin.updated_at, *shown])),
            twin.old,
            from_old,
        )
        for twin in twins
        if twin.updated_at not in shown
    ]


def _comparison(entity: Entity, id: str, number: int, times: list[datetime]) -> str:
    return links.comparison(entity, id, (number, times[0]), (number, times[-1]))


KEY = "opened"
MAX_OPENED = 8


@dataclass(frozen=True, slots=True)
class Opened:
    id: str
    title: str
    url: str


def remember(request: HttpRequest, entity: Entity, id: str) -> None:
    """Put an entity first. The session is written only when the order changes."""
    before = request.session.get(KEY, [])
    after = [[entity.name, id], *(one for one in before if one != [entity.name, id])][:MAX_OPENED]
    if after != before:
        request.session[KEY] = after


def opened(request: HttpRequest) -> list[Opened]:
    """Newest first."""
    return [
        Opened(id, title(BY_NAME[name]), links.landing(BY_NAME[name], id))
        for name, id in request.session.get(KEY, [])
        if name in BY_NAME
    ]
