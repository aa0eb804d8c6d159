"""How much each client service brings, as `annals share` has recorded it."""

from collections.abc import Iterator

from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.formats import get_format, number_format
from django.utils.translation import gettext as _

from history.admin.parts.cards import title
from history.admin.parts.values import count
from history.capacity import client_shares
from history.capacity.client_shares import Amount, Brought, Shares
from history.partitions.show import size


def page(request: HttpRequest) -> HttpResponse:
    """Services by bytes, the most first, each with its kinds; what a filter upstream would save.
    Nothing of a document is here."""
    found = client_shares.recorded()
    retention = settings.ANNALS.retention_days
    context = {
        **admin.site.each_context(request),
        "title": _("How much each service brings"),
        "found": found,
        "retention": retention,
    }
    if found is not None:
        nothing, both = found.saved(retention)
        context |= {
            "lines": list(_lines(found)),
            "total": _cells(found.total, found.total),
            "sampled": count(found.total.compared),
            "saved_nothing": _bytes(nothing),
            "saved_both": _bytes(both),
        }
    return render(request, "history/share.html", context)


def _lines(found: Shares) -> Iterator[tuple[str, str, list[str]]]:
    """The service, the title of a kind of entity, and the cells. A service's own line has no
    kind; the lines of its kinds do not repeat its name."""
    for client, brought in found.by_client():
        yield client or _("other services"), "", _cells(brought, found.total)
        for line in found.lines:
            if line.client_id == client:
                yield "", title(line.entity), _cells(line.brought, found.total)


def _cells(brought: Brought, total: Brought) -> list[str]:
    """Versions, share, bytes, changed nothing, technical only."""
    return [
        count(brought.all.versions),
        _percent(brought.all, total.all),
        _bytes(brought.all.bytes),
        _percent(brought.nothing, brought.all),
        _percent(brought.technical, brought.all),
    ]


def _percent(part: Amount, whole: Amount) -> str:
    if not whole.versions:
        return ""
    # number_format cuts what it does not show.
    return f"{number_format(round(part.versions / whole.versions * 100, 1), 1)}%"


def _bytes(number: float) -> str:
    return size(int(number)).replace(".", str(get_format("DECIMAL_SEPARATOR")))
