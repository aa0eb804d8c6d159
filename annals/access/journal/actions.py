"""Which addresses are looks, and at what. An address that is in neither list is a look."""

from __future__ import annotations

from typing import Final

from django.http import HttpRequest
from django.urls import ResolverMatch

from annals.access.journal.words import Action

BREAK_GLASS: Final = "annals_break_glass"  # set on the request, and in the session

# By the end of the route, the first one that fits.
_ENDS: Final = (
    ("/compare", Action.COMPARE),
    ("/at", Action.MOMENT),
    ("/fields", Action.FIELD),
    ("/blame", Action.BLAME),
    ("/state", Action.BLAME),
    ("/unmask", Action.UNMASK),
    ("/versions/<str:version>", Action.VERSION),
    ("/versions/<int:version>", Action.VERSION),
    ("/versions", Action.TIMELINE),
)
# By its beginning. What follows in an address is data: only routes are compared.
_BEGINNINGS: Final = (
    ("at/", Action.MOMENT),
    ("applications/", Action.APPLICATION),
    ("history/<", Action.TIMELINE),
    ("search", Action.SEARCH),
    ("gaps/", Action.SEARCH),
    ("trace", Action.VERSION),
    ("history/", Action.SEARCH),
    ("ingest/quarantined/", Action.QUARANTINE),
    ("journal/", Action.JOURNAL),
)
# Nothing of an application, of the quarantine or of the journal is here.
_NO_LOOKS: Final = (
    "oidc/",
    "api/schema/",
    "api/docs/",
    "api/v1/completeness",
    *(
        f"admin/{each}"
        for each in (
            *("login/", "logout/", "language/", "jsi18n/", "completeness/", "share/"),
            *("history/person/", "history/fieldlabel/", "auth/", "autocomplete/"),
            *("^(?P<app_label>", "(?P<url>"),
        )
    ),
)
# What sends to the first page, that page, and the API's unknown addresses.
_PAGES: Final = ("", "admin/", "api/v1/")


def action_of(request: HttpRequest) -> Action | None:
    """What a request asks for; None if it is no look. Known after the request was answered."""
    if getattr(request, BREAK_GLASS, False):
        return Action.LOGIN
    match: ResolverMatch | None = request.resolver_match
    return None if match is None else action_of_route(match.route)


def action_of_route(route: str) -> Action | None:
    """The same by the URL pattern alone."""
    if route in _PAGES or route.startswith(_NO_LOOKS):
        return None
    rest = route.removeprefix("admin/").removeprefix("api/v1/")
    if rest.startswith("applications/") and not rest.endswith("/at"):
        return Action.APPLICATION
    for end, action in _ENDS:
        if rest.rstrip("/").endswith(end):
            return action
    for beginning, action in _BEGINNINGS:
        if rest.startswith(beginning):
            return action
    return Action.OTHER
