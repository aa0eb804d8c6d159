"""The page for an entity or version that is not there: why, and a search box."""

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _

from history.admin.parts import links
from history.admin.parts.cards import absent, title
from history.entities import ENTITIES, Entity
from history.timeline import Absence, NotFoundError, OlderThanRetentionError


def not_found_page(
    request: HttpRequest, entity: Entity, id: str, reason: NotFoundError
) -> HttpResponse:
    """404, with the reason; for a version with the way back to the others of its entity."""
    number = reason.version
    if number is not None:
        why = _version_note(number, reason.why)
    elif isinstance(reason, OlderThanRetentionError):
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
            "unanswered": reason.unanswered,
            "history_url": "" if number is None else links.timeline(entity, id),
            "entities": [title(one) for one in ENTITIES],
        },
        status=404,
    )


def _version_note(number: int, why: Absence | None) -> str:
    if why is None:
        return _("The history has no version {n}.").format(n=number)
    if why in (Absence.REMOVED, Absence.ARCHIVED):
        note = _("Version {n} was removed: it is past the days that are kept.")
        return note.format(n=number)
    return f"{absent(number, why)}."
