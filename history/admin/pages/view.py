"""What all pages about documents do: who may open them, and why a document is not there."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _

from history import timeline, trace
from history.admin.parts import damage, gaps, heads, held, standing
from history.admin.parts.cards import title
from history.admin.parts.headline import for_titles
from history.admin.site.access import PERMISSION
from history.entities import ENTITIES, Entity, root
from history.masking.viewer import may
from history.need_to_know import NeedToKnowError, RuleFailedError
from history.record import MAX_VERSION
from history.requests import accesses
from history.timeline import Absence, NotFoundError, Reader
from history.timeline.query import storable
from history.trace import State

RETRY_SECONDS = 5
P = ParamSpec("P")


def may_view_history(
    view: Callable[Concatenate[HttpRequest, Reader, P], HttpResponse],
) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
    """Open a view only to logins with PERMISSION; the site itself requires the log-in. Documents
    are masked as the login may see them, and an application that the login may not see is refused.
    What is not there is a page that says why. The reader is the view's second argument."""

    @wraps(view)
    def checked(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        if not may(request.user, PERMISSION):
            raise PermissionDenied
        try:
            reader = timeline.of_request(request.user, accesses.of(request))
            damage.tell(request, reader)
            if place := _place(kwargs):
                standing.read(request, *place)
            try:
                return view(request, reader, *args, **kwargs)
            except timeline.NotFoundError as error:
                entity, id = _place(kwargs) or (None, "")
                return _not_found(request, reader, entity or root(), id, error)
        except (NeedToKnowError, RuleFailedError) as error:
            return _refused(request, error)

    return checked


def _place(address: Mapping[str, Any]) -> tuple[Entity | None, str] | None:
    """Return the document that an address names, or an application (None and its id)."""
    return (address.get("entity"), address["id"]) if "id" in address else None


def _refused(request: HttpRequest, error: NeedToKnowError | RuleFailedError) -> HttpResponse:
    failed = isinstance(error, RuleFailedError)
    context = {**admin.site.each_context(request), "failed": failed}
    status = 503 if failed else 403
    answer = render(request, "history/not_open.html", context, status=status)
    if failed:
        answer.headers["Retry-After"] = str(RETRY_SECONDS)
    return answer


def _not_found(
    request: HttpRequest, reader: Reader, entity: Entity, id: str, reason: NotFoundError
) -> HttpResponse:
    """404, with the reason; for a version below the head of its entity, as on its other pages."""
    number = reason.version
    head = {"title": f"{title(entity)} {id}", "hide_finder": True}
    fate: Sequence[str] = ()
    if number is not None:
        found = trace.of_version(reader, entity, id, min(number, MAX_VERSION))
        known = found.state not in (State.UNKNOWN, State.STORED)
        known = known and reason.why is not Absence.ARCHIVED
        why = "" if known else _version_note(number, reason.why)
        if found.state is not State.STORED:  # the number is stored, of another moment
            fate = gaps.said(found)[0 if known else 1 :]
        with suppress(NotFoundError):  # retention removes the others too
            newest = timeline.newest(for_titles(reader), entity, id)
            name = _("version {n}").format(n=number)
            head = heads.context(request, reader, entity, id, newest, name=name)
    else:
        why = _(
            "The store has nothing with this id in the days that are kept. Check the id; "
            "it may also be of another kind of entity."
        )
        lines = held.of_unknown(reader, [entity], [id]) if storable(id) else []
        fate = [text for _id, _entity, its in lines for text in its]
        if storable(id) and reader.may_be_archived(entity, id):
            why += " " + _("It may be in the archive.") + " " + gaps.ask_archive()
    return render(
        request,
        "history/missing.html",
        {
            **admin.site.each_context(request),
            "complete": standing.of(request).complete,
            **head,
            "query": id,
            "why": why,
            "unanswered": reader.old.failed,
            "fate": fate,
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
