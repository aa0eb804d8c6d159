"""What happened in all applications of a client, in one order, week by week."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from operator import attrgetter
from typing import Any, Final
from urllib.parse import urlencode

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from history import complete_to, masking, timeline
from history.admin.pages.view import may_view_history
from history.admin.parts import held, links
from history.admin.parts.cards import CardBuilder
from history.admin.parts.found import make_groups
from history.admin.parts.headline import for_titles
from history.base import clock
from history.entities import ENTITIES, PARTS
from history.requests.worker_shares import expensive_view
from history.timeline import (
    BadParameterError,
    Filters,
    Include,
    Order,
    Page,
    Query,
    Reader,
)

MOST_APPLICATIONS = 20
MOST_VERSIONS = 50  # of one application
WEEK = "week"
WHOLE_WEEK: Final = timedelta(days=7)
CHANGES = frozenset({Include.CHANGES})


@may_view_history
@expensive_view
def page(request: HttpRequest, reader: Reader) -> HttpResponse:
    """?q= is a number of the client, ?week= as 2026-W44; without it the current week. Weeks are
    those of the reader's zone."""
    number = request.GET.get("q", "").strip()
    monday = _monday(request)
    try:
        results = timeline.search(for_titles(reader), number, MOST_APPLICATIONS) if number else None
    except BadParameterError:
        results = None
    # Before the versions: what comes out of quarantine meanwhile is named and shown.
    messages = timeline.open_messages(reader, results.found if results else [])
    groups = make_groups(reader, {number: results}) if results else []
    hits = groups[0].hits if groups else []
    found = [one.application for one in results.found if one.application] if results else []
    ids = [*dict.fromkeys(found)] if PARTS else []
    pages = [*_pages(reader, ids, Filters(since=monday, until=monday + WHOLE_WEEK))]
    versions = [each for its in pages for each in its.versions]
    versions.sort(key=attrgetter("updated_at"), reverse=True)
    builder = CardBuilder(
        maker_filter=lambda one: links.with_maker(links.landing(one.entity, one.id), one, {}),
        merged=True,
        unmask=masking.holds(request.user, masking.UNMASK),
        titles={str(hit["id"]): str(hit["title"]) for hit in hits},
    )
    return render(
        request,
        "history/client.html",
        {
            **admin.site.each_context(request),
            "complete": complete_to.read(ENTITIES),
            "title": _("Client {number}").format(number=number),
            "number": number,
            "query": number,
            "hide_finder": not hits,
            "hits": hits,
            "unstored": held.notice(messages, merged=True),
            "more": bool(results and (results.next_token or results.limited)),
            "cut": any(its.next_token for its in pages),
            "monday": monday.date(),
            "sunday": monday.date() + timedelta(days=6),
            "cards": builder.build(versions),
            "nearest": [] if versions else _nearest(reader, ids, number, monday),
            **_weeks(number, monday),
        },
    )


def _pages(
    reader: Reader,
    ids: Sequence[str],
    filters: Filters,
    most: int = MOST_VERSIONS,
    include: frozenset[Include] = CHANGES,
    **asked: Any,
) -> Iterator[Page]:
    """The first page of each application."""
    for id in ids:
        query = Query(id=id, filters=filters, page_size=most, include=include, **asked)
        with suppress(timeline.NotFoundError):
            yield timeline.page(reader, query)


def _nearest(
    reader: Reader, ids: Sequence[str], number: str, monday: datetime
) -> list[tuple[datetime, str]]:
    """Time and address of the week of the last change before a week, and of the first one after."""
    reader, nothing = reader.without_documents(), frozenset[Include]()
    before = _pages(reader, ids, Filters(until=monday), 1, nothing)
    after = _pages(reader, ids, Filters(since=monday + WHOLE_WEEK), 1, nothing, order=Order.ASC)
    found = [
        [each.updated_at.astimezone(monday.tzinfo) for its in pages for each in its.versions]
        for pages in (before, after)
    ]
    moments = [*sorted(found[0])[-1:], *sorted(found[1])[:1]]
    return [(each, _address(number, each)) for each in moments]


def _monday(request: HttpRequest) -> datetime:
    """The beginning of the week in the reader's zone."""
    here, today = timezone.get_current_timezone(), timezone.localdate(clock.now())
    try:
        year, number = request.GET.get(WEEK, "").split("-W")
        # Of the first and the last year the weeks around a week may not exist.
        day = date.fromisocalendar(min(max(int(year), 1900), 9000), int(number), 1)
    except (ValueError, OverflowError):
        day = today - timedelta(days=today.weekday())
    return datetime.combine(day, time(), here).astimezone(here)


def _weeks(number: str, monday: datetime) -> dict[str, str]:
    """The addresses of the weeks before and after; empty for a week to come."""
    before, after = monday - WHOLE_WEEK, monday + WHOLE_WEEK
    coming = after > clock.now().astimezone(UTC)
    return {
        "older_url": _address(number, before),
        "newer_url": "" if coming else _address(number, after),
    }


def _address(number: str, day: datetime) -> str:
    """Of the week of a day."""
    week = day.strftime("%G-W%V")
    return f"{reverse('admin:history_client')}?{urlencode({'q': number, WEEK: week})}"
