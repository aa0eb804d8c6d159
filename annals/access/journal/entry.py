"""What the journal says of one request, made from the request and its answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from django.http import HttpRequest, HttpResponseBase
from django.urls import reverse

from annals.access.attempts import address_of
from annals.access.journal.actions import BREAK_GLASS
from annals.access.journal.words import Action, Actor, Outcome
from annals.access.oidc.bearer import Service
from history import need_to_know
from history.entities import ROOT, Entity
from history.looks import Look

QUARANTINE: Final = "quarantine"
# Why somebody looks, in their own words, as a client may say it: UTF-8, percent-encoded.
REASON: Final = "X-Annals-Reason"
# A list of a thousand hits may hide as many; the first ones say who looked for what.
MOST_HIDDEN: Final = 20
# Parameters whose values cannot be data of a client, and what such a value looks like.
_HARMLESS: Final = {
    "pageSize": r"\d{1,3}",
    "sort": r"updatedAt|version",
    "order": r"asc|desc",
    "type": r"CREATE|UPDATE|DELETE",
    "include": r"[a-z,]{1,30}",
    "tz": r"[A-Za-z]+(/[A-Za-z_]+)*",
    "archive": r"true|false",
    "download": r"1",
    "format": r"[a-z]{1,5}",
    **dict.fromkeys(
        ("from", "to", "time", "since", "until"),
        r"\d{1,10}|\d{4}-\d\d-\d\d([T ][\d:.]{5,15}(Z|[+-][\d:]{2,5})?)?",
    ),
    **dict.fromkeys(("action", "outcome"), "[a-z -]{1,20}"),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of the journal without its time and id; see annals.access.models.JournalEntry."""

    login: str
    actor: Actor
    address: str
    request_id: str
    action: Action
    outcome: Outcome
    status: int
    entity: str = ""
    entity_id: str = ""
    application: str = ""
    method: str = ""
    query: str = ""
    reason: str = ""


def entries(
    request: HttpRequest, response: HttpResponseBase, action: Action, look: Look
) -> Iterator[Entry]:
    """The rows of a request that was answered: one for each application that it read, or one; and
    one for each that a list left out, because the reader may not see it."""
    actor, login = _who(request)
    entity, identifier, application = _subject(request, action)
    outcome = _outcome(response)
    if look.unmasked:
        action = Action.UNMASK
    elif action is Action.UNMASK and outcome is Outcome.SHOWN:
        action = Action.VERSION  # the page that asks for the reason
    found = Entry(
        login=login,
        actor=actor,
        address=address_of(request),
        request_id=request.META.get("HTTP_X_REQUEST_ID", ""),
        action=action,
        outcome=outcome,
        status=response.status_code,
        entity=entity,
        entity_id=identifier,
        method=request.method or "",
        query=_query(request, look),
        reason=_reason(request, look),
    )
    # What the address names may have shown another application too, where a child has moved.
    of = dict.fromkeys(filter(None, (application, *look.applications)))
    for each in of or [""]:
        yield replace(found, application=each)
    for each in look.hidden[:MOST_HIDDEN]:
        yield replace(
            found,
            application=each,
            outcome=Outcome.REFUSED,
            reason=f"{need_to_know.REASON}: left out of the list",
        )


def _reason(request: HttpRequest, look: Look) -> str:
    """The person's words, after what refused them."""
    words = look.reason or unquote(request.headers.get(REASON, ""))
    return ": ".join(each for each in (look.refused, words) if each)


def _who(request: HttpRequest) -> tuple[Actor, str]:
    user: Any = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return Actor.NOBODY, ""
    if isinstance(user, Service):
        return Actor.SERVICE, user.get_username()
    broken = getattr(request, BREAK_GLASS, False) or request.session.get(BREAK_GLASS, False)
    return Actor.BREAK_GLASS if broken else Actor.PERSON, user.get_username()


def _subject(request: HttpRequest, action: Action) -> tuple[str, str, str]:
    """Kind, id and application, as far as the address names them."""
    given: Mapping[str, Any] = request.resolver_match.kwargs if request.resolver_match else {}
    if action is Action.QUARANTINE:
        return QUARANTINE, given.get("object_id", ""), ""
    if action is Action.JOURNAL:
        asked = request.GET.get
        return asked("entity", ""), asked("id", ""), asked("application", "")
    kind, identifier = given.get("entity"), given.get("id", "")
    if "productInstanceId" in given or action is Action.APPLICATION:
        identifier = given.get("productInstanceId", identifier)
        return ROOT.name, identifier, identifier
    name = kind.name if isinstance(kind, Entity) else kind or ""
    return name, identifier, identifier if name == ROOT.name else ""


def _outcome(response: HttpResponseBase) -> Outcome:
    status = response.status_code
    if status in (401, 403, 429):
        return Outcome.REFUSED
    if status >= 400:
        return Outcome.FAILED
    login = urlsplit(response.headers.get("Location", "")).path == reverse("admin:login")
    return Outcome.REFUSED if login else Outcome.SHOWN


def _query(request: HttpRequest, look: Look) -> str:
    """The path, the names of the parameters and the harmless values; what was unmasked."""
    names = []
    for name, value in request.GET.items():
        harmless = name in _HARMLESS and re.fullmatch(_HARMLESS[name], str(value))
        names.append(f"{name}={value}" if harmless else name)
    return " ".join([request.path + ("?" if names else "") + "&".join(names), *look.unmasked])
