"""The timeline page of one entity."""

from functools import partial

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _

from history import completeness, timeline
from history.admin import links, recent
from history.admin.access import may_view_history
from history.admin.cards import Deck
from history.admin.complete import Complete
from history.admin.forms import FilterForm, known_authors
from history.admin.missing import nothing_here
from history.admin.paging import PAGE, pages
from history.admin.subject import subject
from history.entities import Entity
from history.timeline import Include, Page, Query, Version

PAGE_SIZE = 50
CHANGES = frozenset({Include.CHANGES})


@may_view_history
def page(request: HttpRequest, entity: Entity, id: str) -> HttpResponse:
    """Its versions, newest first, as filtered; 404 with a reason where there is nothing."""
    form = FilterForm(request.GET)
    notes: list[str] = []
    try:
        try:
            found, newest = _read(entity, id, form, request.GET.get(PAGE))
        except timeline.BadParameterError as error:
            notes.append(
                _("This cannot be asked ({reason}). Everything is shown.").format(reason=error)
            )
            form = FilterForm({})
            found, newest = _read(entity, id, form, None)
    except timeline.NotFoundError as error:
        return nothing_here(request, entity, id, error)
    recent.remember(request, entity, id)
    deck = Deck.of(
        found.versions,
        newest=newest.version if newest else None,
        path_filter=partial(_only_path, form.parameters()),
    )
    head = subject(entity, id, newest)
    return render(
        request,
        "history/timeline.html",
        {
            **admin.site.each_context(request),
            **pages(request, head.url, form.parameters(), found.next_token),
            "title": f"{head.kind} {id}",
            "subject": head,
            "form": form,
            "notes": notes,
            "cards": deck.cards(found.versions),
            "known_authors": known_authors(found.versions),
            "known_services": deck.services.values(),
            "complete": Complete.of(completeness.read([entity])),
            "at_start": found.next_token is None and not form.applied,
        },
    )


def _read(
    entity: Entity, id: str, form: FilterForm, token: str | None
) -> tuple[Page, Version | None]:
    """The page asked for, and the newest version of all for the head of the page."""
    query = Query(
        entity=entity,
        id=id,
        filters=form.filters(),
        page_size=PAGE_SIZE,
        page_token=token or None,
        include=CHANGES,
    )
    found = timeline.page(query)
    if token or form.applied:
        newest = timeline.page(Query(entity=entity, id=id, page_size=1, include=frozenset()))
        return found, newest.versions[0] if newest.versions else None
    return found, found.versions[0] if found.versions else None


def _only_path(kept: dict[str, str], entity: Entity, id: str, path: str) -> str:
    return links.timeline(entity, id, {**kept, "path": path}) if path else ""
