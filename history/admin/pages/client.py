"""What happened in all applications of a client, in one order, week by week."""

from datetime import UTC, date, datetime, time, timedelta
from operator import attrgetter
from urllib.parse import urlencode

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from history import complete_to, timeline
from history.admin.pages.view import may_view_history
from history.admin.parts import gaps, links
from history.admin.parts.cards import CardBuilder
from history.admin.parts.found import make_groups
from history.base import clock, zone
from history.entities import ENTITIES, PARTS
from history.requests.worker_shares import dear_view
from history.timeline import ApplicationQuery, BadParameterError, Filters, Include, Reader, Version

MOST_APPLICATIONS = 20
MOST_VERSIONS = 50  # of one application
WEEK = "week"
CHANGES = frozenset({Include.CHANGES})


@may_view_history
@dear_view
def page(request: HttpRequest, reader: Reader) -> HttpResponse:
    """?q= is a number of the client, ?week= as 2026-W44; without it the current week. Weeks are
    those of the reader's zone."""
    number = request.GET.get("q", "").strip()
    monday = _monday(request)
    try:
        results = timeline.search(reader, number, MOST_APPLICATIONS) if number else None
    except BadParameterError:
        results = None
    groups = make_groups(reader, {number: results}) if results else []
    hits = groups[0].hits if groups else []
    found = [one.application for one in results.found if one.application] if results else []
    filters = Filters(since=monday, until=monday + timedelta(days=7))
    versions: list[Version] = []
    cut = False
    for id in dict.fromkeys(found) if PARTS else ():
        asked = ApplicationQuery(id=id, filters=filters, page_size=MOST_VERSIONS, include=CHANGES)
        try:
            read = timeline.application(reader, asked)
        except timeline.NotFoundError:
            continue
        versions += read.versions
        cut = cut or read.next_token is not None
    versions.sort(key=attrgetter("updated_at"), reverse=True)
    builder = CardBuilder(
        newest=None,
        merged=True,
        path_filter=links.field,
        maker_filter=lambda one: links.with_maker(links.landing(one.entity, one.id), one, {}),
        path=None,
        twice={},
        titles={str(hit["id"]): str(hit["title"]) for hit in hits},
    )
    return render(
        request,
        "history/client.html",
        {
            **admin.site.each_context(request),
            **gaps.completeness(complete_to.read(ENTITIES)),
            "title": _("Client {number}").format(number=number),
            "number": number,
            "hits": hits,
            "more": bool(results and (results.next_token or results.limited)),
            "cut": cut,
            "monday": monday.date(),
            "sunday": monday.date() + timedelta(days=6),
            "cards": builder.build(versions),
            **_weeks(number, monday),
        },
    )


def _monday(request: HttpRequest) -> datetime:
    """The beginning of the week in the reader's zone."""
    here = zone.of(request)
    today = clock.now().astimezone(here).date()
    try:
        year, number = request.GET.get(WEEK, "").split("-W")
        # Of the first and the last year the weeks around a week may not exist.
        day = date.fromisocalendar(min(max(int(year), 1900), 9000), int(number), 1)
    except (ValueError, OverflowError):
        day = today - timedelta(days=today.weekday())
    return datetime.combine(day, time(), here).astimezone(here)


def _weeks(number: str, monday: datetime) -> dict[str, str]:
    """The addresses of the weeks before and after; empty for a week to come."""

    def address(days: int) -> str:
        week = (monday + timedelta(days=days)).strftime("%G-W%V")
        return f"{reverse('admin:history_client')}?{urlencode({'q': number, WEEK: week})}"

    coming = monday + timedelta(days=7) > clock.now().astimezone(UTC)
    return {"older_url": address(-7), "newer_url": "" if coming else address(7)}
