"""The timeline pages: of one entity, and of an application with its children."""

import re
from dataclasses import dataclass
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _

from history import masking, timeline
from history.admin.pages.view import may_view_history
from history.admin.parts import gaps, heads, held, links, standing
from history.admin.parts.cards import CardBuilder, folded, title
from history.admin.parts.clerk import activity, take_away
from history.admin.parts.filter_form import FilterForm, by_name
from history.admin.parts.headline import for_titles, headline
from history.admin.parts.links import PAGE, pages
from history.base import clock
from history.entities import PARTS, Entity, root
from history.requests.worker_shares import expensive, expensive_view
from history.timeline import Include, Page, Reader, Version
from history.timeline.states import Members

PAGE_SIZE = 50
CHANGES = frozenset({Include.CHANGES})
NOTHING = Page((), None)


@dataclass(frozen=True, slots=True)
class ShownTimeline:
    """What a page shows. whole: an application with its children."""

    entity: Entity
    id: str
    whole: bool = False


@may_view_history
def page(request: HttpRequest, reader: Reader, entity: Entity, id: str) -> HttpResponse:
    """One entity's versions, newest first; 404 with a reason where there is nothing. ?version=
    leads to the page of this number."""
    number = request.GET.get("version", "")
    if re.fullmatch(r"[0-9]{1,40}", number):  # also one that no version can have
        return redirect(links.snapshot(entity, id, int(number)))
    return _respond(request, reader, ShownTimeline(entity, id))


@may_view_history
@expensive_view
def application(request: HttpRequest, reader: Reader, id: str) -> HttpResponse:
    """The versions of an application and of its children in one order."""
    return _respond(request, reader, ShownTimeline(root(), id, whole=True))


def _respond(request: HttpRequest, reader: Reader, source: ShownTimeline) -> HttpResponse:
    kinds = PARTS if source.whole else [source.entity]
    form = FilterForm(request.GET, kinds=kinds)
    # A filter by field reads the whole history; a file is made of all that the page folds away.
    with expensive(form.filters().path is not None or take_away.AS in request.GET):
        return _answer(request, reader, source, form)


def _answer(
    request: HttpRequest, reader: Reader, source: ShownTimeline, form: FilterForm
) -> HttpResponse:
    token = request.GET.get(PAGE) or None
    found, token, notes = _read(reader, source, form, token)
    wrong = form.refused and not form.applied  # nothing is shown
    plain = token is None and not form.applied and not wrong
    newest = _newest(reader, source)
    heads.remember(request, source.entity, source.id)
    kept = form.parameters()
    address = (
        links.application(source.id) if source.whole else links.timeline(source.entity, source.id)
    )
    if (as_file := take_away.AS in request.GET) and not notes:
        return _file(request, reader, source, form, found, newest)
    messages = standing.of(request).messages(reader)
    cards = CardBuilder(
        newest=(newest.version, newest.updated_at) if newest else None,
        merged=source.whole,
        maker_filter=lambda version: links.with_maker(address, version, kept),
        path=form.filters().path,
        unmask=masking.holds(request.user, masking.UNMASK),
        held=held.twins(messages),
        twice=timeline.given_twice(
            reader, found.versions, whole=plain and found.next_token is None
        ),
    )
    children, members = _children(reader, source, shown=source.whole and plain)
    return render(
        request,
        "history/timeline.html",
        {
            **heads.context(
                request,
                reader,
                source.entity,
                source.id,
                newest,
                tab="whole" if source.whole else "card",
                last=_last(reader, source, found if plain else None),
            ),
            **pages(request, address, kept, token, found.next_token),
            "more_links": admin.site.links_of(request, source.entity, source.id),  # type: ignore[attr-defined]
            **children,
            "merged": source.whole,
            "form": form,
            "notes": notes,
            "meant": [
                (name, where, links.with_path(address, where, kept)) for name, where in form.meant
            ],
            "chips": form.chips(address),
            "files": [] if wrong or found is NOTHING else take_away.links(address, kept, token),
            "above": held.above(messages, found.versions, merged=source.whole) if plain else [],
            "groups": folded(cards.build(found.versions)),
            "newer_poll": _poll(source, found) if plain else "",
            **(_picture(reader, source, address, members) if token is None else {}),
            "known_authors": by_name(each.author for each in found.versions),
            "known_services": by_name(each.service for each in found.versions),
            "at_start": found.next_token is None and not form.applied and not wrong,
        },
        status=400 if as_file else 200,
    )


def _poll(source: ShownTimeline, found: Page) -> str:
    """Where the page asks whether there are newer versions."""
    if not found.versions:
        return ""
    newest = found.versions[0].updated_at
    return links.newer(source.entity, source.id, newest, whole=source.whole)


def _picture(
    reader: Reader, source: ShownTimeline, address: str, members: Members | None
) -> dict[str, object]:
    url = activity.versions_of(address)
    keys = (members or reader.members(source.id)) if source.whole else None
    return activity.of_timeline(reader, source.entity, source.id, url, keys)


def _file(
    request: HttpRequest,
    reader: Reader,
    source: ShownTimeline,
    form: FilterForm,
    found: Page,
    newest: Version | None,
) -> HttpResponse:
    """The page as a file, masked as the page."""
    address = request.path
    known = standing.of(request)
    messages = known.messages(reader)
    taken = take_away.Taken(
        f"{source.entity.name}-{source.id}",
        f"{title(source.entity)} {source.id} {headline(newest.data) if newest else ''}".rstrip(),
        take_away.head(request, form.chips(address), found, known.complete, messages),
        found.versions,
        form.filters().path,
        messages,
    )
    return take_away.answer(taken, request.GET[take_away.AS])


def _read(
    reader: Reader, source: ShownTimeline, form: FilterForm, token: str | None
) -> tuple[Page, str | None, list[str]]:
    """The page without what is wrong in the question: its conditions, or its token."""
    notes = []
    while True:
        try:
            found = heads.versions(
                reader,
                source.entity,
                source.id,
                whole=source.whole,
                filters=form.filters(),
                page_size=PAGE_SIZE,
                page_token=token,
                include=CHANGES,
            )
            break
        except timeline.OlderThanRetentionError:
            notes.append(gaps.kept(form.filters().until))
            found = NOTHING
            break
        except timeline.BadParameterError as error:
            if not form.refuse(error.name):
                if token is None:
                    raise
                notes.append(
                    _("The page in the address is not valid. The newest versions are shown.")
                )
                token = None
    if form.refused:
        text = _("Wrong, and not used: {conditions}. The filter says what is wrong.")
        quoted = [_("“{condition}”").format(condition=label) for label in form.refused]
        notes.append(text.format(conditions=", ".join(quoted)))
        found = found if form.applied else NOTHING
    return found, token, notes


def _newest(reader: Reader, source: ShownTimeline) -> Version | None:
    """The newest version, for the head of the page; None where the store has only children."""
    try:
        return timeline.newest(for_titles(reader), source.entity, source.id)
    except timeline.NotFoundError:
        return None


def _last(reader: Reader, source: ShownTimeline, first: Page | None) -> Version | None:
    """The last change of an application, if it is one of a child. first: the first page of all
    versions, where that was read."""
    if not source.whole:
        return None
    asked: dict[str, Any] = {"whole": True, "page_size": 1, "include": frozenset()}
    page = first or heads.versions(reader.without_documents(), source.entity, source.id, **asked)
    return next((each for each in page.versions[:1] if each.entity.parent), None)


def _children(
    reader: Reader, source: ShownTimeline, *, shown: bool
) -> tuple[dict[str, object], Members | None]:
    """The children that the application has now, and those that were deleted; all its keys."""
    if not shown:
        return {}, None
    try:
        found = timeline.application_at(
            for_titles(reader), source.id, clock.now(), heads.MOST_PARTS
        )
    except timeline.NotFoundError:
        return {}, None
    return {"children": heads.children(reader, found), "hidden": found.unread}, found.members
