"""The page of a client: the changes of all the client's applications, week by week."""

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

from history import timeline
from history.admin.components import links, open_messages
from history.admin.components.cards import CardBuilder
from history.admin.components.headline import limit_to_title_fields
from history.admin.components.search_results import make_groups
from history.admin.pages.permission import require_history_permission
from history.common import clock
from history.common.worker_shares import mark_expensive
from history.completeness import complete_to
from history.kinds.entities import ENTITIES, PARTS
from history.policy import masking
from history.timeline import (
    BadParameterError,
    HistoryReader,
    Include,
    TimelineOrder,
    TimelinePage,
    TimelineQuery,
    VersionFilters,
)

MOST_APPLICATIONS = 20
MOST_VERSIONS = 50  # how many versions of one application are shown
WEEK = "week"
WHOLE_WEEK: Final = timedelta(days=7)
CHANGES = frozenset({Include.CHANGES})


@require_history_permission
@mark_expensive
def show_client(request: HttpRequest, reader: HistoryReader) -> HttpResponse:
    """Show one week of the client with the number ?q=.

    ?week= has the form 2026-W44; without it the current week is shown. A week begins and ends in
    the time zone of the viewer.
    """
    number = request.GET.get("q", "").strip()
    monday = _parse_monday(request)
    try:
        page = (
            timeline.search(limit_to_title_fields(reader), number, MOST_APPLICATIONS)
            if number
            else None
        )
    except BadParameterError:
        page = None
    # Read before the versions: see page_completeness.
    messages = timeline.fetch_open_messages(reader, page.results if page else [])
    groups = make_groups(reader, {number: page}) if page else []
    hits = groups[0].hits if groups else []
    applications = (
        [result.application for result in page.results if result.application] if page else []
    )
    ids = [*dict.fromkeys(applications)] if PARTS else []
    pages = [*_fetch_pages(reader, ids, VersionFilters(since=monday, until=monday + WHOLE_WEEK))]
    versions = [version for page in pages for version in page.versions]
    versions.sort(key=attrgetter("updated_at"), reverse=True)
    builder = CardBuilder(
        maker_filter=lambda version: links.build_timeline_url_for_maker(
            links.build_landing_url(version.entity, version.id), version, {}
        ),
        merged=True,
        unmask=masking.has_explicit_permission(request.user, masking.UNMASK),
        titles={str(hit["id"]): str(hit["title"]) for hit in hits},
    )
    return render(
        request,
        "history/client.html",
        {
            **admin.site.each_context(request),
            "complete": complete_to.read_completeness(ENTITIES),
            "title": _("Client {number}").format(number=number),
            "number": number,
            "query": number,
            "hide_finder": not hits,
            "hits": hits,
            "unstored": open_messages.make_notice(messages, merged=True),
            "more": bool(page and (page.next_token or page.limited)),
            "cut": any(page.next_token for page in pages),
            "monday": monday.date(),
            "sunday": monday.date() + timedelta(days=6),
            "cards": builder.build_cards(versions),
            "nearest": [] if versions else _find_nearest_weeks(reader, ids, number, monday),
            **_make_week_urls(number, monday),
        },
    )


def _fetch_pages(
    reader: HistoryReader,
    ids: Sequence[str],
    filters: VersionFilters,
    max_versions: int = MOST_VERSIONS,
    include: frozenset[Include] = CHANGES,
    **conditions: Any,
) -> Iterator[TimelinePage]:
    """Yield the first page of each application's timeline. Skip applications without a timeline.

    Args:
        conditions: Further fields of TimelineQuery.
    """
    for id in ids:
        query = TimelineQuery(
            id=id, filters=filters, page_size=max_versions, include=include, **conditions
        )
        with suppress(timeline.NotFoundError):
            yield timeline.fetch_page(reader, query)


def _find_nearest_weeks(
    reader: HistoryReader, ids: Sequence[str], number: str, monday: datetime
) -> list[tuple[datetime, str]]:
    """Find the nearest weeks with changes, before and after the week that begins at `monday`.

    Returns:
        The last change before the week, and the first change after it, if they exist: the moment of
        the change, and the address of the page for the week of this moment.
    """
    reader, no_parts = reader.omit_snapshots(), frozenset[Include]()
    before = _fetch_pages(reader, ids, VersionFilters(until=monday), 1, no_parts)
    after = _fetch_pages(
        reader, ids, VersionFilters(since=monday + WHOLE_WEEK), 1, no_parts, order=TimelineOrder.ASC
    )
    moments_of_sides = [
        [
            version.updated_at.astimezone(monday.tzinfo)
            for page in pages
            for version in page.versions
        ]
        for pages in (before, after)
    ]
    moments = [*sorted(moments_of_sides[0])[-1:], *sorted(moments_of_sides[1])[:1]]
    return [(moment, _build_week_url(number, moment)) for moment in moments]


def _parse_monday(request: HttpRequest) -> datetime:
    """Return the beginning of the week that the request asks for, in the viewer's time zone."""
    zone, today = timezone.get_current_timezone(), timezone.localdate(clock.now())
    try:
        year, number = request.GET.get(WEEK, "").split("-W")
        # Limited, so that the weeks before and after this one exist.
        day = date.fromisocalendar(min(max(int(year), 1900), 9000), int(number), 1)
    except (ValueError, OverflowError):
        day = today - timedelta(days=today.weekday())
    return datetime.combine(day, time(), zone).astimezone(zone)


def _make_week_urls(number: str, monday: datetime) -> dict[str, str]:
    """Return `older_url` and `newer_url`: the weeks before and after the week from `monday` on.

    `newer_url` is empty if the next week has not begun yet.
    """
    before, after = monday - WHOLE_WEEK, monday + WHOLE_WEEK
    is_to_come = after > clock.now().astimezone(UTC)
    return {
        "older_url": _build_week_url(number, before),
        "newer_url": "" if is_to_come else _build_week_url(number, after),
    }


def _build_week_url(number: str, day: datetime) -> str:
    """Return the address of the client's page for the week with this day."""
    week = day.strftime("%G-W%V")
    return f"{reverse('admin:history_client')}?{urlencode({'q': number, WEEK: week})}"
