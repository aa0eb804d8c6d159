"""The stored snapshot of one version, to read, to copy and to download."""

from dataclasses import dataclass

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.text import get_valid_filename
from django.utils.translation import gettext as _

from history import masking, timeline
from history.admin.pages.missing import not_found_page
from history.admin.parts import links
from history.admin.parts.cards import fields_of
from history.admin.parts.change_rows import steps
from history.admin.parts.heads import other_versions, subject
from history.admin.parts.value_html import coloured
from history.admin.site.access import may_view_history
from history.documents.exactjson import indented
from history.entities import Entity
from history.timeline import Version


@dataclass(frozen=True, slots=True)
class Hidden:
    """A masked value that the login may unmask. url: where it gives the reason."""

    label: str
    shown: str
    url: str


@may_view_history
def page(request: HttpRequest, entity: Entity, id: str, version: int) -> HttpResponse:
    """?at= says which version is meant where a producer gave the number twice; without it the
    younger one. With ?download=1 the JSON itself. 404 with a reason."""
    made = links.parse_moment(request.GET.get(links.AT))
    try:
        found = timeline.version(entity, id, version, frozenset(), made)
        twins = other_versions(entity, id, version, [found.updated_at])
    except timeline.NotFoundError as error:
        return not_found_page(request, entity, id, error)
    text = indented(found.snapshot)
    if "download" in request.GET:
        response = HttpResponse(text, content_type="application/json; charset=utf-8")
        name = get_valid_filename(f"{entity.name}-{id}-v{version}.json")
        response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
        return response
    head = subject(entity, id, found)
    previous = found.previous_version
    return render(
        request,
        "history/snapshot.html",
        {
            **admin.site.each_context(request),
            "title": f"{head.kind} {id}",
            "subject": head,
            "text": text,
            "json": coloured(text),
            "hidden": _unmaskable(request, found),
            "twins": twins,
            "download_url": f"{links.snapshot(entity, id, version, found.updated_at)}&download=1",
            "previous": previous,
            "previous_url": "" if previous is None else links.snapshot(entity, id, previous),
            "compare_url": ""
            if previous is None
            else links.compare(
                entity,
                id,
                {"from": previous, "to": version, links.TO_AT: links.moment(found.updated_at)},
            ),
        },
    )


def _unmaskable(request: HttpRequest, found: Version) -> list[Hidden]:
    """The masked values of a version; none for a login that may not unmask them."""
    entity = found.entity
    hidden = timeline.masked_values(entity, found.data)
    if not hidden or not masking.holds(request.user, masking.UNMASK):
        return []
    fields = fields_of(entity)
    return [
        Hidden(
            " › ".join(steps(each.path, found.data, fields)) or _("the whole document"),
            masking.shown(each.masked),
            links.unmask(entity, found.id, found.version, each.path, found.updated_at),
        )
        for each in hidden
    ]
