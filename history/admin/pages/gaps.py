"""The page for operators with the versions that never arrived."""

from collections.abc import Mapping

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from history.admin.components import gaps as words
from history.admin.components import links
from history.admin.components.cards import get_kind_title
from history.admin.components.links import PAGE, build_page_urls
from history.admin.site.access import PERMISSION
from history.common.plain_text import format_figure
from history.common.worker_shares import mark_expensive
from history.completeness import complete_to, trace
from history.completeness.gaps import read
from history.completeness.gaps.read import GapSelection, ListedGap
from history.completeness.gaps.run import get_latest_run
from history.documents.record import CLIENT_ID_LENGTH
from history.kinds.entities import BY_NAME, ENTITIES

PAGE_SIZE = 50
MAX_ARRIVED = 3


@mark_expensive
def show_gaps(request: HttpRequest) -> HttpResponse:
    """Show the open or the closed gaps, newest first.

    The page also shows the number of open gaps by kind and service.
    """
    selection, parameters = _parse_selection(request)
    token = request.GET.get(PAGE, "")
    before = int(token) if token.isascii() and token.isdigit() and len(token) < 19 else None
    gaps = read.fetch_page(selection, PAGE_SIZE + 1, before)
    following = str(gaps[PAGE_SIZE - 1].gap.id) if len(gaps) > PAGE_SIZE else None
    address = reverse("admin:gaps")
    may_read = request.user.has_perm(PERMISSION)
    run = get_latest_run()
    return render(
        request,
        "history/gaps.html",
        {
            **admin.site.each_context(request),
            **build_page_urls(request, address, parameters, token if before else None, following),
            "title": _("Versions that never arrived"),
            "lines": [_make_line(listed_gap, may_read) for listed_gap in gaps[:PAGE_SIZE]],
            "sums": [
                (
                    get_kind_title(BY_NAME[gap_sum.entity]),
                    gap_sum.client_id,
                    format_figure(gap_sum.versions),
                    gap_sum.gaps,
                )
                for gap_sum in read.fetch_sums()
                if gap_sum.entity in BY_NAME
            ],
            "run": run,
            "complete": complete_to.read_completeness(ENTITIES),
            "quarantined": format_figure(run.quarantined) if run else "",
            "selection": selection,
            "kinds": [(name, get_kind_title(entity)) for name, entity in BY_NAME.items()],
            "other_url": f"{address}" if selection.closed else f"{address}?closed=1",
        },
    )


def _parse_selection(request: HttpRequest) -> tuple[GapSelection, Mapping[str, str]]:
    """Return the filter in the request, and the same filter as parameters for links."""
    parameters_ = request.GET
    entity, client = (
        parameters_.get("entity", ""),
        parameters_.get("clientId", "")[:CLIENT_ID_LENGTH],
    )
    entity = entity if entity in BY_NAME else ""
    client = "" if "\0" in client else client
    closed = parameters_.get("closed") == "1"
    parameters = {
        name: value
        for name, value in (("entity", entity), ("clientId", client), ("closed", "1" * closed))
        if value
    }
    return GapSelection(entity or None, client or None, closed), parameters


def _make_line(listed_gap: ListedGap, may_read: bool) -> dict[str, object]:
    """Return the template's variables for a version gap.

    `url` is the address of the timeline, or "" if the login may not open the timeline. `notes` has
    a sentence on each missing version that is in quarantine, and a sentence that says when the
    producer was asked for the missing versions. `outcome` says how a closed gap ended.
    """
    gap, entity = listed_gap.gap, BY_NAME.get(listed_gap.gap.entity)
    versions = gap.last - gap.first + 1
    messages = list(listed_gap.quarantined.values())
    sentences = [
        text
        for message in messages[:MAX_ARRIVED]
        for text in words.describe_fate(trace.make_quarantined_fate(message))
    ]
    if len(messages) > MAX_ARRIVED:
        sentences.append(_("and {n} more").format(n=len(messages) - MAX_ARRIVED))
    if gap.asked_at and not gap.closed_at:
        sentences.append(words.format_request_time(gap.asked_at))
    outcomes = {
        "arrived": _("arrived late"),
        "recovered": _("arrived late"),
        "expired": _("past the days that are kept"),
    }
    return {
        "gap": gap,
        "kind": get_kind_title(entity) if entity else gap.entity,
        "url": links.build_timeline_url(entity, gap.document) if entity and may_read else "",
        "versions": str(gap.first) if versions == 1 else f"{gap.first}–{gap.last}",
        "count": format_figure(versions),
        "outcome": outcomes.get(gap.outcome, ""),
        "notes": sentences,
    }
