"""What all pages about documents share: who may open them, and the page of a missing document."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _

from history import timeline
from history.admin.components import (
    damage,
    gaps,
    open_messages,
    page_completeness,
    page_head,
)
from history.admin.components.cards import get_kind_title
from history.admin.components.headline import limit_to_title_fields
from history.admin.site.access import PERMISSION
from history.completeness import trace
from history.completeness.trace import FateState
from history.documents.record import MAX_VERSION
from history.kinds.entities import ENTITIES, EntityKind, get_root
from history.policy import access_record
from history.policy.masking.viewer import has_permission
from history.policy.need_to_know import NeedToKnowError, RuleFailedError
from history.timeline import Absence, HistoryReader, NotFoundError
from history.timeline.query import is_storable_id

RETRY_SECONDS = 5
P = ParamSpec("P")


def require_history_permission(
    view: Callable[Concatenate[HttpRequest, HistoryReader, P], HttpResponse],
) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
    """Decorate a view: allow only logins with PERMISSION, and pass the view a reader.

    The site itself requires a login. The reader masks snapshots for this login. If the login may
    not see the application, the answer is 403. If the document is missing, the answer is 404 with
    the reason.
    """

    @wraps(view)
    def check_and_view(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        if not has_permission(request.user, PERMISSION):
            raise PermissionDenied
        try:
            reader = timeline.make_request_reader(
                request.user, access_record.get_access_record(request)
            )
            damage.attach_damage(request, reader)
            if document := _parse_document(kwargs):
                page_completeness.read_completeness(request, *document)
            try:
                return view(request, reader, *args, **kwargs)
            except timeline.NotFoundError as error:
                entity, id = _parse_document(kwargs) or (None, "")
                return _respond_not_found(request, reader, entity or get_root(), id, error)
        except (NeedToKnowError, RuleFailedError) as error:
            return _respond_refused(request, error)

    return check_and_view


def _parse_document(address: Mapping[str, Any]) -> tuple[EntityKind | None, str] | None:
    """Return the kind and id of the document in an address.

    The kind is None for a page about an application with its children. Returns None if the address
    does not name a document.
    """
    return (address.get("entity"), address["id"]) if "id" in address else None


def _respond_refused(
    request: HttpRequest, error: NeedToKnowError | RuleFailedError
) -> HttpResponse:
    failed = isinstance(error, RuleFailedError)
    context = {**admin.site.each_context(request), "failed": failed}
    status = 503 if failed else 403
    answer = render(request, "history/not_open.html", context, status=status)
    if failed:
        answer.headers["Retry-After"] = str(RETRY_SECONDS)
    return answer


def _respond_not_found(
    request: HttpRequest, reader: HistoryReader, entity: EntityKind, id: str, error: NotFoundError
) -> HttpResponse:
    """Answer 404 with a page that says why the document or version is not found.

    If the document has other versions, the page also has the title and the links of the document.
    """
    number = error.version
    head = {"title": f"{get_kind_title(entity)} {id}", "hide_finder": True}
    fate: Sequence[str] = ()
    if number is not None:
        fate_of_version = trace.trace_version(reader, entity, id, min(number, MAX_VERSION))
        is_explained = fate_of_version.state not in (FateState.UNKNOWN, FateState.STORED)
        is_explained = is_explained and error.reason is not Absence.ARCHIVED
        explanation = "" if is_explained else _explain_missing_version(number, error.reason)
        # If a version of this number is stored, the address means another version of the number.
        if fate_of_version.state is not FateState.STORED:
            fate = gaps.describe_fate(fate_of_version)[0 if is_explained else 1 :]
        with suppress(NotFoundError):  # retention may have removed all versions meanwhile
            newest = timeline.fetch_newest_version(limit_to_title_fields(reader), entity, id)
            name = _("version {n}").format(n=number)
            head = page_head.make_context(request, reader, entity, id, newest, name=name)
    else:
        explanation = _(
            "The store has nothing with this id in the days that are kept. Check the id; "
            "it may also be of another kind of entity."
        )
        lines = (
            open_messages.describe_unknown_documents(reader, [entity], [id])
            if is_storable_id(id)
            else []
        )
        fate = [text for _id, _entity, sentences in lines for text in sentences]
        if is_storable_id(id) and timeline.may_be_archived(reader, entity, id):
            explanation += " " + _("It may be in the archive.") + " " + gaps.get_archive_hint()
    return render(
        request,
        "history/missing.html",
        {
            **admin.site.each_context(request),
            "complete": page_completeness.get_completeness(request).complete,
            **head,
            "query": id,
            "reason": explanation,
            "unanswered": reader.old_service.failed,
            "fate": fate,
            "entities": [get_kind_title(kind) for kind in ENTITIES],
        },
        status=404,
    )


def _explain_missing_version(number: int, absence: Absence | None) -> str:
    if absence is None:
        return _("The history has no version {n}.").format(n=number)
    if absence is Absence.ARCHIVED:
        text = _("Version {n} may be in the archive.").format(n=number)
        return f"{text} {gaps.get_archive_hint()}"
    if absence is Absence.REMOVED:
        note = _("Version {n} was removed: it is past the days that are kept.")
        return note.format(n=number)
    return f"{gaps.explain_absence(number, absence)}."
