"""The page in place of an entity or version that is not there: why, and what to do instead."""

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _

from history.admin.parts.cards import title
from history.entities import ENTITIES, Entity
from history.timeline import NotFoundError, OlderThanRetentionError


def nothing_here(
    request: HttpRequest, entity: Entity, id: str, reason: NotFoundError
) -> HttpResponse:
    """404. Says whether it is too old or was never seen."""
    if isinstance(reason, OlderThanRetentionError):
        why = _("What was asked for is older than the days that are kept.")
    else:
        why = _(
            "No such version was stored in the days that are kept. Look at the id once more; "
            "it may also be of another kind."
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
