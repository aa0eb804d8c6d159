"""The page for an entity or version that is not there: why, and a search box."""

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _

from history.admin.parts.cards import title
from history.entities import ENTITIES, Entity
from history.timeline import NotFoundError, OlderThanRetentionError


def not_found_page(
    request: HttpRequest, entity: Entity, id: str, reason: NotFoundError
) -> HttpResponse:
    """404, with the reason."""
    if isinstance(reason, OlderThanRetentionError):
        why = _("It is older than the days that are kept.")
    else:
        why = _(
            "The store has no such version in the days that are kept. Check the id; "
            "it may also be of another kind of entity."
        )
    return render(
        request,
        "history/missing.html",
        {
            **admin.site.each_context(request),
            "title": f"{title(entity)} {id}",
            "query": id,
            "why": why,
            "entities": [title(one) for one in ENTITIES],
        },
        status=404,
    )
