"""The page for an entity or version that is not there: why, and a search box."""

from collections.abc import Sequence

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _

from history import complete_to, trace
from history.admin.parts import gaps, links
from history.admin.parts.cards import title
from history.entities import ENTITIES, Entity
from history.timeline import Absence, NotFoundError, OlderThanRetentionError, Reader
from history.timeline.query import storable
from history.trace import State


def not_found_page(
    request: HttpRequest, reader: Reader, entity: Entity, id: str, reason: NotFoundError
) -> HttpResponse:
    """404, with the reason; for a version with the way back to the others of its entity."""
    number = reason.version
    fate: Sequence[str] = ()
    if number is not None:
        found = trace.of_version(reader, entity, id, number)
        known = found.state not in (State.UNKNOWN, State.STORED)
        known = known and reason.why is not Absence.ARCHIVED
        why = "" if known else _version_note(number, reason.why)
        if found.state is not State.STORED:  # the number is stored, of another moment
            fate = gaps.said(found)[0 if known else 1 :]
    elif isinstance(reason, OlderThanRetentionError):
        why = _("It is older than the days that are kept.")
    else:
        why = _(
            "The store has nothing with this id in the days that are kept. Check the id; "
            "it may also be of another kind of entity."
        )
        fate = gaps.held(entity, [id]).get(id, ()) if storable(id) else ()
        archive = reader.open_archive()
        if archive and archive.may_have(entity, id):
            why += " " + _("It may be in the archive.") + " " + gaps.ask_archive()
    return render(
        request,
        "history/missing.html",
        {
            **admin.site.each_context(request),
            **gaps.completeness(complete_to.read([entity])),
            "title": f"{title(entity)} {id}",
            "query": id,
            "hide_finder": True,
            "why": why,
            "unanswered": reader.old.failed,
            "fate": fate,
            "history_url": "" if number is None else links.timeline(entity, id),
            "entities": [title(one) for one in ENTITIES],
        },
        status=404,
    )


def _version_note(number: int, why: Absence | None) -> str:
    if why is None:
        return _("The history has no version {n}.").format(n=number)
    if why is Absence.ARCHIVED:
        text = _("Version {n} may be in the archive.").format(n=number)
        return f"{text} {gaps.ask_archive()}"
    if why is Absence.REMOVED:
        note = _("Version {n} was removed: it is past the days that are kept.")
        return note.format(n=number)
    return f"{gaps.absent(number, why)}."
