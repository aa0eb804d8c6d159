"""An application and its children as they were at a moment."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _

from history import timeline
from history.admin.pages.missing import not_found_page
from history.admin.parts import links
from history.admin.parts.cards import fields_of, title, utc
from history.admin.parts.filter_form import MomentForm
from history.admin.parts.headline import Room, headline
from history.admin.parts.heads import changed_by, subject
from history.admin.parts.values import Item, members
from history.admin.site.access import may_view_history
from history.base import clock
from history.entities import root
from history.record import ChangeType
from history.shares import dear_view
from history.timeline import (
    Absence,
    Application,
    MissingPart,
    OlderThanRetentionError,
    Version,
)


@dataclass(frozen=True, slots=True)
class Part:
    """The application or a child, in the version of the moment. items: the fields of its document;
    empty for one that had been deleted, and beyond what a page shows."""

    version: Version
    kind: str
    name: str
    who: str
    utc: str
    deleted: bool
    items: Sequence[Item]
    url: str
    snapshot_url: str


@may_view_history
@dear_view
def page(request: HttpRequest, id: str) -> HttpResponse:
    """?time= in the zone ?tz=; without it, now. 404 with a reason; the form stays where the store
    has the application at another moment."""
    form = MomentForm(request.GET if "time" in request.GET else None)
    given = form.is_valid()
    note = ""
    try:
        found = timeline.application_at(id, form.cleaned_data["at"] if given else clock.now())
    except timeline.NotFoundError as error:
        try:  # it may be there at another moment
            found = timeline.application_at(id, clock.now())
        except timeline.NotFoundError:
            return not_found_page(request, root(), id, error)
        note = _nothing(error)
    head = subject(root(), id, found.application, tab="at")
    empty = note or (form.is_bound and not given)
    context = {
        **admin.site.each_context(request),
        "title": f"{head.kind} {id}",
        "subject": head,
        "form": form,
        "action": links.application_at(id),
        "now": not form.is_bound,
        "parts": [] if empty else _parts(found),
        "notes": [note] if note else [] if empty else [_missing(each) for each in found.missing],
    }
    return render(request, "history/moment.html", context, status=404 if note else 200)


def _nothing(error: timeline.NotFoundError) -> str:
    """Why an application that the store has shows nothing at a moment."""
    if error.why is Absence.UNKNOWN:
        return _(
            "The versions of that moment are not in the store: removed by age, or never arrived."
        )
    if isinstance(error, OlderThanRetentionError):
        return _("The versions of that moment were removed: they are past the days that are kept.")
    if error.why is None:
        return _("The application did not exist yet at that moment.")
    return _("The version of that moment never arrived.")


def _parts(found: Application) -> list[Part]:
    """The application, then its children by kind, those that had been deleted at the end."""
    room = Room()
    root = [found.application] if found.application else []
    return [_part(each, room) for each in (*root, *found.children, *found.deleted)]


def _part(version: Version, room: Room) -> Part:
    entity, data = version.entity, version.data
    deleted = version.type is ChangeType.DELETE
    document = data if isinstance(data, dict) and not deleted else {}
    return Part(
        version=version,
        kind=title(entity),
        name=headline(data) or version.id,
        who=changed_by(version),
        utc=utc(version.updated_at),
        deleted=deleted,
        items=members(document, fields_of(entity, room), "", 1),
        url=links.timeline(entity, version.id),
        snapshot_url=links.snapshot(entity, version.id, version.version, version.updated_at),
    )


def _missing(part: MissingPart) -> str:
    text = (
        _("{kind} {id}: the version of that moment never arrived.")
        if part.why is Absence.NEVER_ARRIVED
        else _("{kind} {id}: the version of that moment is not in the store.")
    )
    return text.format(kind=title(part.entity), id=part.id)
