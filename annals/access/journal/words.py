"""The words of the journal: kinds of actor, actions, outcomes; and the action of each address."""

from typing import Final

from django.db import models
from django.http import HttpRequest
from django.urls import ResolverMatch
from django.utils.translation import gettext_lazy as _

from history.requests import accesses


class Actor(models.TextChoices):
    """Who asks. A program is named by its client id, an operator by the system's login."""

    PERSON = "person", _("person")
    SERVICE = "service", _("program")
    BREAK_GLASS = "break-glass", _("break-glass login")
    OPERATOR = "operator", _("operator on the server")
    NOBODY = "nobody", _("not logged in")


class Action(models.TextChoices):
    """What is asked for."""

    TIMELINE = "timeline", _("timeline")
    APPLICATION = "application", _("whole application")
    VERSION = "version", _("one version")
    COMPARE = "compare", _("comparison")
    MOMENT = "moment", _("state at a moment")
    FIELD = "field", _("history of a field")
    BLAME = "blame", _("who changed which field")
    SEARCH = "search", _("search or list")
    QUARANTINE = "quarantine", _("quarantine")
    UNMASK = "unmask", _("unmasking")
    EXPORT = "export", _("export")
    JOURNAL = "journal", _("access journal")
    LOGIN = "break-glass login", _("login with a break-glass link")
    OTHER = "other", _("other")


class Outcome(models.TextChoices):
    """What came of it. refused: not logged in, no permission. failed: nothing there, a wrong
    parameter, an error."""

    SHOWN = "shown", _("shown")
    REFUSED = "refused", _("refused")
    FAILED = "failed", _("failed")


BREAK_GLASS: Final = "annals_break_glass"  # set on the request, and in the session

# An address that is in neither list is a look. By the end of the route, the first one that fits.
_ENDS: Final = (
    ("/compare", Action.COMPARE),
    ("/at", Action.MOMENT),
    ("/fields", Action.FIELD),
    ("/field", Action.FIELD),
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
    ("client/", Action.SEARCH),
    ("trace", Action.VERSION),
    ("history/", Action.SEARCH),
    ("ingest/quarantined/", Action.QUARANTINE),
    ("quarantine/", Action.QUARANTINE),
    ("journal/", Action.JOURNAL),
)
# Nothing of an application, of the quarantine or of the journal is here.
_NO_LOOKS: Final = (
    *("oidc/", "break-glass/", "api/schema/", "api/docs/", "api/v1/completeness"),
    *(
        f"admin/{each}"
        for each in (
            *("login/", "logout/", "language/", "zone/", "jsi18n/", "completeness/"),
            *("operations/", "days/", "history/person/", "history/fieldlabel/", "auth/"),
            *("autocomplete/", "^(?P<app_label>", "(?P<url>"),
        )
    ),
)
# Only for what the login opened before: how many versions came since.
_COUNTS: Final = "/<id:id>/newer/"
# What sends to the first page, that page, and the API's unknown addresses.
_PAGES: Final = ("", "admin/", "api/v1/")


def action_of(request: HttpRequest) -> Action | None:
    """What a request asks for; None if it is no look. Known after the request was answered."""
    if getattr(request, BREAK_GLASS, False):
        return Action.LOGIN
    match: ResolverMatch | None = request.resolver_match
    if match is None:
        return None
    if match.route == "admin/" and accesses.of(request).listed:
        return Action.SEARCH  # the first page shows what the login opened last
    action = action_of_route(match.route)
    taken = action in (Action.TIMELINE, Action.APPLICATION) and "as" in request.GET
    return Action.EXPORT if taken and match.route.startswith("admin/") else action


def action_of_route(route: str) -> Action | None:
    """The same by the URL pattern alone."""
    if route in _PAGES or route.startswith(_NO_LOOKS) or route.endswith(_COUNTS):
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
