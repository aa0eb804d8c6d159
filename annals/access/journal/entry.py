"""What the journal says of one request, made from the request and its answer."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from django.contrib.auth import SESSION_KEY, get_user
from django.http import HttpRequest, HttpResponseBase
from django.urls import reverse

from annals.access.address import address_of
from annals.access.journal.words import BREAK_GLASS, Action, Actor, Outcome
from annals.access.models import JournalEntry, identity_of
from annals.access.roles import Service
from history import need_to_know
from history.base.plain_text import letters
from history.entities import ROOT, Entity
from history.requests.accesses import Look

QUARANTINE: Final = "quarantine"
TRACE: Final = "api/v1/trace"  # what it is about is in its parameters
# Why somebody looks, in their own words, as a client may say it: UTF-8, percent-encoded.
REASON: Final = "X-Annals-Reason"
# A list of a thousand hits may hide as many; the first ones say who looked for what.
MOST_HIDDEN: Final = 20
# Parameters whose values are no data of a client; none of a request that was refused or failed.
_HARMLESS: Final = frozenset(
    (
        *("pageSize", "sort", "order", "type", "include", "archive", "download", "format", "as"),
        *("entity", "topic", "version", "partition", "offset", "action", "outcome"),
        *("from", "to", "time", "since", "until", "at", "fromAt", "toAt", "updatedAt"),
    )
)
_HARMLESS_VALUE: Final = re.compile(r"[A-Za-z.,-]{1,60}|\d{1,6}|20\d\d-\d\d-\d\d[T\d:.+Z-]{,30}")


def entries(
    request: HttpRequest, response: HttpResponseBase, action: Action, look: Look
) -> Iterator[JournalEntry]:
    """The rows of a request that was answered: one for each application that it read, or one; and
    one for each that a list left out, because the reader may not see it."""
    actor, login, identity = _who(request)
    entity, identifier, application = _subject(request, action)
    outcome = _outcome(response)
    if look.unmasked:
        action = Action.UNMASK
    elif action is Action.UNMASK and outcome is Outcome.SHOWN:
        action = Action.VERSION  # the page that asks for the reason
    found = {
        "login": login,
        "identity": identity,
        "actor": actor,
        "address": address_of(request),
        "request_id": request.META.get("HTTP_X_REQUEST_ID", ""),
        "action": action,
        "status": response.status_code,
        "entity": entity,
        "entity_id": identifier,
        "method": request.method or "",
        "query": _query(request, action, outcome),
    }
    if look.unmasked:
        found["path"] = look.unmasked.path
        found["moment"] = look.unmasked.moment.astimezone(UTC).isoformat()
    reason = _reason(request, look)
    # What the address names may have shown another application too, where a child has moved.
    of = dict.fromkeys(filter(None, (application, *look.applications)))
    for each in of or [""]:
        yield JournalEntry(**found, application=each, outcome=outcome, reason=reason)
    left_out = f"{need_to_know.REASON}: left out of the list"
    for each in look.hidden[:MOST_HIDDEN]:
        yield JournalEntry(**found, application=each, outcome=Outcome.REFUSED, reason=left_out)


def _reason(request: HttpRequest, look: Look) -> str:
    """The person's words, if there are any, after what refused them."""
    words = look.reason or unquote(request.headers.get(REASON, ""))
    return ": ".join(each for each in (look.refused, words) if letters(each))


def _who(request: HttpRequest) -> tuple[Actor, str, str]:
    """Actor, login, identity."""
    user = _user(request)
    if user is None:
        return Actor.NOBODY, "", ""
    if isinstance(user, Service):
        return Actor.SERVICE, user.get_username(), f"{user.pk} sub={user.subject}"
    broken = getattr(request, BREAK_GLASS, False) or request.session.get(BREAK_GLASS, False)
    actor = Actor.BREAK_GLASS if broken else Actor.PERSON
    return actor, user.get_username(), identity_of(user.pk)


def _user(request: HttpRequest) -> Any:
    """Who is logged in; None for nobody."""
    user: Any = getattr(request, "user", None)
    if user is not None and user.is_authenticated:
        return user
    session = getattr(request, "session", None)
    if session is None or SESSION_KEY not in session:
        return None
    user = get_user(request)
    return user if user.is_authenticated else None


def _subject(request: HttpRequest, action: Action) -> tuple[str, str, str]:
    """Kind, id and application, as far as the address names them."""
    given: Mapping[str, Any] = request.resolver_match.kwargs if request.resolver_match else {}
    if action is Action.QUARANTINE:
        return QUARANTINE, given.get("object_id", ""), ""
    asked = request.GET
    if action is Action.JOURNAL:
        return asked.get("entity", ""), asked.get("id", ""), asked.get("application", "")
    if request.resolver_match and request.resolver_match.route == TRACE:
        given = asked.dict()
    kind, identifier = given.get("entity"), given.get("id", "")
    whole = action in (Action.APPLICATION, Action.MOMENT, Action.EXPORT) and kind is None
    if "productInstanceId" in given or whole:
        identifier = given.get("productInstanceId", identifier)
        return ROOT.name if ROOT else "", identifier, identifier
    name = kind.name if isinstance(kind, Entity) else kind or ""
    return name, identifier, identifier if ROOT and name == ROOT.name else ""


def _outcome(response: HttpResponseBase) -> Outcome:
    status = response.status_code
    if status in (401, 403):
        return Outcome.REFUSED
    if status >= 400:
        return Outcome.FAILED
    target = response.headers.get("Location")
    login = target is not None and urlsplit(target).path == reverse("admin:login")
    return Outcome.REFUSED if login else Outcome.SHOWN


def _query(request: HttpRequest, action: Action, outcome: Outcome) -> str:
    """The path, with the parameters that can be no data of a client."""
    if outcome is not Outcome.SHOWN:
        return request.path
    kept = "&".join(
        f"{name}={value}"
        for name, value in request.GET.items()
        if (name in _HARMLESS and _HARMLESS_VALUE.fullmatch(str(value)))
        or (name == "login" and action is Action.JOURNAL)  # of an employee or a program
    )
    return f"{request.path}?{kept}" if kept else request.path
