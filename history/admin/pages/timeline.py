"""The timeline pages: one for a document, one for an application with its children."""

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _

from history import timeline
from history.admin.components import (
    gaps,
    links,
    open_messages,
    page_completeness,
    page_head,
)
from history.admin.components.cards import CardBuilder, get_kind_title, group_cards
from history.admin.components.filter_form import FilterForm, sort_by_name
from history.admin.components.headline import limit_to_title_fields
from history.admin.components.links import PAGE, build_page_urls
from history.admin.pages.permission import require_history_permission
from history.admin.reading_aids import activity, timeline_export
from history.common import clock
from history.common.worker_shares import mark_expensive, take_expensive_place
from history.kinds.entities import PARTS, EntityKind, get_root
from history.policy import masking
from history.timeline import HistoryReader, Include, TimelinePage, Version
from history.timeline.moments import Members
from history.timeline.titles import get_headline

PAGE_SIZE = 50
CHANGES = frozenset({Include.CHANGES})
EMPTY_PAGE = TimelinePage((), None)


@dataclass(frozen=True, slots=True)
class ShownTimeline:
    """The document with the timeline that a page shows.

    If `whole` is true, the document is an application, and the timeline also has the versions of
    all children of the application.
    """

    entity: EntityKind
    id: str
    whole: bool = False


@require_history_permission
def show_timeline(
    request: HttpRequest, reader: HistoryReader, entity: EntityKind, id: str
) -> HttpResponse:
    """Show the versions of one document, the newest first. If there are none, answer 404.

    ?version= redirects to the page of the version with this number.
    """
    number = request.GET.get("version", "")
    if re.fullmatch(r"[0-9]{1,40}", number):  # also numbers that no version can have
        return redirect(links.build_snapshot_url(entity, id, int(number)))
    return _respond(request, reader, ShownTimeline(entity, id))


@require_history_permission
@mark_expensive
def show_application(request: HttpRequest, reader: HistoryReader, id: str) -> HttpResponse:
    """Show the versions of an application and its children in one list, the newest first."""
    return _respond(request, reader, ShownTimeline(get_root(), id, whole=True))


def _respond(request: HttpRequest, reader: HistoryReader, shown: ShownTimeline) -> HttpResponse:
    kinds = PARTS if shown.whole else [shown.entity]
    form = FilterForm(request.GET, kinds=kinds)
    # Expensive: a filter by path reads the whole history, and a file has all rows of the page.
    with take_expensive_place(
        form.to_filters().path is not None or timeline_export.FORM_PARAMETER in request.GET
    ):
        return _render_timeline(request, reader, shown, form)


def _render_timeline(
    request: HttpRequest, reader: HistoryReader, shown: ShownTimeline, form: FilterForm
) -> HttpResponse:
    token = request.GET.get(PAGE) or None
    page, token, notes = _read_page(reader, shown, form, token)
    is_nothing_shown = form.refused and not form.applied
    is_plain = token is None and not form.applied and not is_nothing_shown
    newest = _load_newest(reader, shown)
    page_head.remember_opened(request, shown.entity, shown.id)
    parameters = form.get_parameters()
    address = (
        links.build_application_url(shown.id)
        if shown.whole
        else links.build_timeline_url(shown.entity, shown.id)
    )
    if (as_file := timeline_export.FORM_PARAMETER in request.GET) and not notes:
        return _respond_with_file(request, reader, shown, form, page, newest)
    messages = page_completeness.get_completeness(request).load_messages(reader)
    cards = CardBuilder(
        newest=(newest.version, newest.updated_at) if newest else None,
        merged=shown.whole,
        maker_filter=lambda version: links.build_timeline_url_for_maker(
            address, version, parameters
        ),
        path=form.to_filters().path,
        unmask=masking.has_explicit_permission(request.user, masking.UNMASK),
        quarantine_notes=open_messages.describe_by_version(messages),
        repeated_numbers=timeline.find_repeated_numbers(
            reader, page.versions, are_all_versions=is_plain and page.next_token is None
        ),
    )
    children, members = _load_children(reader, shown, is_shown=shown.whole and is_plain)
    return render(
        request,
        "history/timeline.html",
        {
            **page_head.make_context(
                request,
                reader,
                shown.entity,
                shown.id,
                newest,
                tab="whole" if shown.whole else "card",
                last_child_change=_find_last_child_change(
                    reader, shown, page if is_plain else None
                ),
            ),
            **build_page_urls(request, address, parameters, token, page.next_token),
            "more_links": admin.site.list_subject_links(request, shown.entity, shown.id),  # type: ignore[attr-defined]
            **children,
            "merged": shown.whole,
            "form": form,
            "notes": notes,
            "matching_fields": [
                (name, path, links.build_timeline_url_for_path(address, path, parameters))
                for name, path in form.matching_fields
            ],
            "chips": form.make_chips(address),
            "shared_url": form.build_shared_url(request),
            "files": []
            if is_nothing_shown or page is EMPTY_PAGE
            else timeline_export.list_file_links(address, parameters, token),
            "above": open_messages.describe_messages_above(
                messages, page.versions, merged=shown.whole
            )
            if is_plain
            else [],
            "groups": group_cards(cards.build_cards(page.versions)),
            "newer_poll": _build_poll_url(shown, page) if is_plain else "",
            **(_draw_picture(reader, shown, address, members) if token is None else {}),
            "known_authors": sort_by_name(version.author for version in page.versions),
            "known_services": sort_by_name(version.service for version in page.versions),
            "at_start": page.next_token is None and not form.applied and not is_nothing_shown,
        },
        status=400 if as_file else 200,
    )


def _build_poll_url(shown: ShownTimeline, page: TimelinePage) -> str:
    """Return the address at which the page asks whether there are newer versions.

    Empty if the page has no versions.
    """
    if not page.versions:
        return ""
    newest = page.versions[0].updated_at
    return links.build_newer_url(shown.entity, shown.id, newest, whole=shown.whole)


def _draw_picture(
    reader: HistoryReader, shown: ShownTimeline, address: str, members: Members | None
) -> dict[str, object]:
    url = activity.link_days_to_versions(address)
    keys = (members or timeline.fetch_members(reader, shown.id)) if shown.whole else None
    return activity.make_activity_context(reader, shown.entity, shown.id, url, keys)


def _respond_with_file(
    request: HttpRequest,
    reader: HistoryReader,
    shown: ShownTimeline,
    form: FilterForm,
    page: TimelinePage,
    newest: Version | None,
) -> HttpResponse:
    """Answer with the versions of the page as a file. They are masked as on the page."""
    completeness = page_completeness.get_completeness(request)
    messages = completeness.load_messages(reader)
    headline = get_headline(newest.data) if newest else ""
    export = timeline_export.TimelineExport(
        f"{shown.entity.name}-{shown.id}",
        f"{get_kind_title(shown.entity)} {shown.id} {headline}".rstrip(),
        timeline_export.describe_export(request, form, page, completeness.complete, messages),
        page.versions,
        form.to_filters().path,
        messages,
    )
    return timeline_export.make_response(export, request.GET[timeline_export.FORM_PARAMETER])


class _FetchedTimeline(NamedTuple):
    """The result of reading the page of a timeline that a request asks for."""

    page: TimelinePage
    token: str | None  # the token that was used
    notes: list[str]  # for the viewer, on what was ignored


def _read_page(
    reader: HistoryReader, shown: ShownTimeline, form: FilterForm, token: str | None
) -> _FetchedTimeline:
    """Read the page, ignoring conditions and a token that are wrong."""
    notes = []
    while True:
        try:
            page = page_head.fetch_page(
                reader,
                shown.entity,
                shown.id,
                whole=shown.whole,
                filters=form.to_filters(),
                page_size=PAGE_SIZE,
                page_token=token,
                include=CHANGES,
            )
            break
        except timeline.OlderThanRetentionError:
            notes.append(gaps.explain_retention(form.to_filters().until))
            page = EMPTY_PAGE
            break
        except timeline.BadParameterError as error:
            if not form.refuse_condition(error.name):
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
        page = page if form.applied else EMPTY_PAGE
    return _FetchedTimeline(page, token, notes)


def _load_newest(reader: HistoryReader, shown: ShownTimeline) -> Version | None:
    """Return the newest version of the document, or None if the store has only its children."""
    try:
        return timeline.fetch_newest_version(limit_to_title_fields(reader), shown.entity, shown.id)
    except timeline.NotFoundError:
        return None


def _find_last_child_change(
    reader: HistoryReader, shown: ShownTimeline, first_page: TimelinePage | None
) -> Version | None:
    """Return the newest version in the shown timeline if it is a version of a child, else None.

    Returns None, too, if the page shows the timeline of a single document.
    `first_page` is the first page of the timeline without a filter. If it is None, the function
    reads this page.
    """
    if not shown.whole:
        return None
    query: dict[str, Any] = {"whole": True, "page_size": 1, "include": frozenset()}
    page = first_page or page_head.fetch_page(
        reader.omit_snapshots(), shown.entity, shown.id, **query
    )
    return next((version for version in page.versions[:1] if version.entity.parent), None)


def _load_children(
    reader: HistoryReader, shown: ShownTimeline, *, is_shown: bool
) -> tuple[dict[str, object], Members | None]:
    """Read the children of an application, if `is_shown`.

    Returns:
        1. The template's variables for the children; empty if they were not read.
        2. The keys of all versions of the application and its children; None if they were not
           read.
    """
    if not is_shown:
        return {}, None
    try:
        state = timeline.fetch_application_at(
            limit_to_title_fields(reader), shown.id, clock.now(), page_head.MOST_PARTS
        )
    except timeline.NotFoundError:
        return {}, None
    return {
        "children": page_head.group_children(reader, state),
        "hidden": state.unread,
    }, state.members
