"""The versions that never arrived, as a page for operators."""

from collections.abc import Mapping

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from history import complete_to, trace
from history.admin.parts import gaps as words
from history.admin.parts import links
from history.admin.parts.cards import title
from history.admin.parts.links import PAGE, pages
from history.admin.site.access import PERMISSION
from history.base.plain_text import figure
from history.entities import BY_NAME, ENTITIES
from history.gaps import read
from history.gaps.read import ListedGap, Selection
from history.gaps.run import latest
from history.record import CLIENT_ID_LENGTH
from history.requests.worker_shares import expensive_view

PAGE_SIZE = 50
MOST_CAME = 3


@expensive_view
def page(request: HttpRequest) -> HttpResponse:
    """The open gaps, the latest found first, or the closed ones; the sums by kind and service."""
    selection, parameters = _selection(request)
    token = request.GET.get(PAGE, "")
    before = int(token) if token.isascii() and token.isdigit() and len(token) < 19 else None
    found = read.page(selection, PAGE_SIZE + 1, before)
    following = str(found[PAGE_SIZE - 1].gap.id) if len(found) > PAGE_SIZE else None
    address = reverse("admin:gaps")
    may_read = request.user.has_perm(PERMISSION)
    run = latest()
    return render(
        request,
        "history/gaps.html",
        {
            **admin.site.each_context(request),
            **pages(request, address, parameters, token if before else None, following),
            "title": _("Versions that never arrived"),
            "lines": [_line(each, may_read) for each in found[:PAGE_SIZE]],
            "sums": [
                (title(BY_NAME[each.entity]), each.client_id, figure(each.versions), each.gaps)
                for each in read.sums()
                if each.entity in BY_NAME
            ],
            "run": run,
            "complete": complete_to.read(ENTITIES),
            "quarantined": figure(run.quarantined) if run else "",
            "selection": selection,
            "kinds": [(name, title(entity)) for name, entity in BY_NAME.items()],
            "other_url": f"{address}" if selection.closed else f"{address}?closed=1",
        },
    )


def _selection(request: HttpRequest) -> tuple[Selection, Mapping[str, str]]:
    """What is asked for, and the parameters that keep it on every page."""
    given = request.GET
    entity, client = given.get("entity", ""), given.get("clientId", "")[:CLIENT_ID_LENGTH]
    entity = entity if entity in BY_NAME else ""
    client = "" if "\0" in client else client
    closed = given.get("closed") == "1"
    parameters = {
        name: value
        for name, value in (("entity", entity), ("clientId", client), ("closed", "1" * closed))
        if value
    }
    return Selection(entity or None, client or None, closed), parameters


def _line(each: ListedGap, may_read: bool) -> dict[str, object]:
    """A gap as it is shown. url: the timeline, for those who may read it. came: what is known of
    versions that came, and when others were asked for. outcome: of a closed one."""
    gap, entity = each.gap, BY_NAME.get(each.gap.entity)
    versions = gap.last - gap.first + 1
    held = list(each.came.values())
    came = [text for one in held[:MOST_CAME] for text in words.said(trace.quarantined_fate(one))]
    if len(held) > MOST_CAME:
        came.append(_("and {n} more").format(n=len(held) - MOST_CAME))
    if gap.asked_at and not gap.closed_at:
        came.append(words.asked(gap.asked_at))
    outcomes = {
        "arrived": _("arrived late"),
        "recovered": _("arrived late"),
        "expired": _("past the days that are kept"),
    }
    return {
        "gap": gap,
        "kind": title(entity) if entity else gap.entity,
        "url": links.timeline(entity, gap.document) if entity and may_read else "",
        "versions": str(gap.first) if versions == 1 else f"{gap.first}–{gap.last}",
        "count": figure(versions),
        "outcome": outcomes.get(gap.outcome, ""),
        "came": came,
    }
