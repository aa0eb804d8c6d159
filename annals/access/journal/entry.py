"""Makes the journal entries of one request from the request and its answer."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from django.contrib.auth import SESSION_KEY, get_user
from django.http import HttpRequest, HttpResponseBase
from django.urls import reverse

from annals.access.client_address import get_client_address
from annals.access.journal.actions import (
    BREAK_GLASS,
    AccessAction,
    AccessOutcome,
    ActorKind,
)
from annals.access.models import JournalEntry, format_user_identity
from annals.access.roles import ProgramUser
from history.common.plain_text import count_letters
from history.kinds.entities import ROOT, EntityKind
from history.policy import need_to_know
from history.policy.access_record import AccessRecord

QUARANTINE: Final = "quarantine"
TRACE: Final = "api/v1/trace"  # its parameters name the version or message
# The header with the reason for an access, in the person's own words: UTF-8, percent-encoded.
REASON: Final = "X-Annals-Reason"
# A list can leave out a thousand applications. Entries for the first of them are enough to show
# who searched for what.
MAX_HIDDEN_ENTRIES: Final = 20
# Parameters whose values cannot be data of the bank's clients. Only these are kept in `query`.
_HARMLESS_PARAMETERS: Final = frozenset(
    (
        "pageSize",
        "sort",
        "order",
        "type",
        "include",
        "archive",
        "download",
        "format",
        "as",
        "entity",
        "topic",
        "version",
        "partition",
        "offset",
        "action",
        "outcome",
        "from",
        "to",
        "time",
        "since",
        "until",
        "at",
        "fromAt",
        "toAt",
        "updatedAt",
    )
)
_HARMLESS_VALUE: Final = re.compile(r"[A-Za-z.,-]{1,60}|\d{1,6}|20\d\d-\d\d-\d\d[T\d:.+Z-]{,30}")


def generate_entries(
    request: HttpRequest, response: HttpResponseBase, action: AccessAction, access: AccessRecord
) -> Iterator[JournalEntry]:
    """Generate the journal entries of an answered request.

    Yields one entry for each application that the request read, or else one entry without an
    application. After these, yields one REFUSED entry for each of the first MAX_HIDDEN_ENTRIES
    applications that the answer left out because the viewer may not see them.

    A page of changes gets only one entry: its `query` has the person and the service whose changes
    were shown, and its `reason` has the number of applications that the page left out.
    """
    actor, subject = _identify_actor(request), _find_subject(request, action)
    outcome = _classify_outcome(response)
    if access.unmasked:
        action = AccessAction.UNMASK
    elif action is AccessAction.UNMASK and outcome is AccessOutcome.SHOWN:
        action = AccessAction.VERSION  # the page that asks for the reason
    fields = {
        "login": actor.login,
        "identity": actor.identity,
        "actor": actor.kind,
        "address": get_client_address(request),
        "request_id": request.META.get("HTTP_X_REQUEST_ID", ""),
        "action": action,
        "status": response.status_code,
        "entity": subject.kind,
        "entity_id": subject.id,
        "method": request.method or "",
        "query": _format_query(request, action, outcome, access),
    }
    if access.unmasked:
        fields["path"] = access.unmasked.path
        fields["moment"] = access.unmasked.moment.astimezone(UTC).isoformat()
    reason = _format_reason(request, access)
    if access.is_one_entry:
        yield JournalEntry(
            **fields, application="", outcome=outcome, reason=_add_hidden_count(reason, access)
        )
        return
    # A child that moved also shows data of the application to which it belonged before.
    applications = dict.fromkeys(filter(None, (subject.application, *access.applications)))
    for opened_application in applications or [""]:
        yield JournalEntry(**fields, application=opened_application, outcome=outcome, reason=reason)
    left_out = f"{need_to_know.REFUSED_BY_RULE}: left out of the list"
    for opened_application in access.hidden[:MAX_HIDDEN_ENTRIES]:
        yield JournalEntry(
            **fields, application=opened_application, outcome=AccessOutcome.REFUSED, reason=left_out
        )


def _format_reason(request: HttpRequest, access: AccessRecord) -> str:
    """Return the text for the column `reason` of the journal.

    It says why Annals refused the request, and then why the viewer sent it. A part that is not
    known is left out.
    """
    words = access.reason or unquote(request.headers.get(REASON, ""))
    return ": ".join(text for text in (access.refused, words) if count_letters(text))


def _add_hidden_count(reason: str, access: AccessRecord) -> str:
    """Return `reason`, preceded by the number of applications that the answer left out, if any."""
    count = len(access.hidden)
    hidden = f"{need_to_know.REFUSED_BY_RULE}: {count} left out of the list" if count else ""
    return ": ".join(filter(None, [hidden, reason]))


class _Actor(NamedTuple):
    """Who made a request."""

    kind: ActorKind
    login: str
    identity: str  # the identity behind the login


def _identify_actor(request: HttpRequest) -> _Actor:
    """Return who made the request."""
    user = _find_user(request)
    if user is None:
        return _Actor(ActorKind.NOBODY, "", "")
    if isinstance(user, ProgramUser):
        return _Actor(ActorKind.SERVICE, user.get_username(), f"{user.pk} sub={user.subject}")
    is_break_glass = getattr(request, BREAK_GLASS, False) or request.session.get(BREAK_GLASS, False)
    kind = ActorKind.BREAK_GLASS if is_break_glass else ActorKind.PERSON
    return _Actor(kind, user.get_username(), format_user_identity(user.pk))


def _find_user(request: HttpRequest) -> Any:
    """Return the logged-in user, or None.

    If the authentication middleware has not run yet, the user is read from the session.
    """
    user: Any = getattr(request, "user", None)
    if user is not None and user.is_authenticated:
        return user
    session = getattr(request, "session", None)
    if session is None or SESSION_KEY not in session:
        return None
    user = get_user(request)
    return user if user.is_authenticated else None


class _Subject(NamedTuple):
    """The document that the URL of a request names. A field that is not in the URL is empty."""

    kind: str
    id: str
    application: str


def _find_subject(request: HttpRequest, action: AccessAction) -> _Subject:
    """Return the document that the URL of a request names."""
    parameters: Mapping[str, Any] = request.resolver_match.kwargs if request.resolver_match else {}
    if action is AccessAction.QUARANTINE:
        return _Subject(QUARANTINE, parameters.get("object_id", ""), "")
    query = request.GET
    if action is AccessAction.JOURNAL:
        return _Subject(query.get("entity", ""), query.get("id", ""), query.get("application", ""))
    if request.resolver_match and request.resolver_match.route == TRACE:
        parameters = query.dict()
    kind, identifier = parameters.get("entity"), parameters.get("id", "")
    is_whole_application = (
        action in (AccessAction.APPLICATION, AccessAction.MOMENT, AccessAction.EXPORT)
        and kind is None
    )
    if "productInstanceId" in parameters or is_whole_application:
        identifier = parameters.get("productInstanceId", identifier)
        return _Subject(ROOT.name if ROOT else "", identifier, identifier)
    name = kind.name if isinstance(kind, EntityKind) else kind or ""
    return _Subject(name, identifier, identifier if ROOT and name == ROOT.name else "")


def _classify_outcome(response: HttpResponseBase) -> AccessOutcome:
    status = response.status_code
    if status in (401, 403):
        return AccessOutcome.REFUSED
    if status >= 400:
        return AccessOutcome.FAILED
    target = response.headers.get("Location")
    is_login_redirect = target is not None and urlsplit(target).path == reverse("admin:login")
    return AccessOutcome.REFUSED if is_login_redirect else AccessOutcome.SHOWN


def _format_query(
    request: HttpRequest, action: AccessAction, outcome: AccessOutcome, access: AccessRecord
) -> str:
    """Return the path and those parameters that cannot contain data of the bank's clients.

    For a page of changes, the filters that the page really used are added, with absolute moments:
    see `AccessRecord.question`. If the answer showed nothing, only the path is returned.
    """
    if outcome is not AccessOutcome.SHOWN:
        return request.path
    parameters = {
        name: value
        for name, value in request.GET.items()
        if (name in _HARMLESS_PARAMETERS and _HARMLESS_VALUE.fullmatch(str(value)))
        or (name == "login" and action is AccessAction.JOURNAL)  # a login is not data of a client
        # The author and the clientId of a page of changes are logins, so the entry may have them.
        or (name in ("author", "clientId") and access.is_one_entry)
    } | access.question
    query = "&".join(f"{name}={value}" for name, value in parameters.items())
    return f"{request.path}?{query}" if query else request.path
