"""The words that the journal uses for actors, actions and outcomes, and the action of each URL."""

from typing import Final

from django.db import models
from django.http import HttpRequest
from django.urls import ResolverMatch
from django.utils.translation import gettext_lazy as _

from history.policy import access_record


class ActorKind(models.TextChoices):
    """The kind of login behind an access.

    The journal names a program by its client id, and an operator by the login of the operating
    system.
    """

    PERSON = "person", _("person")
    SERVICE = "service", _("program")
    BREAK_GLASS = "break-glass", _("break-glass login")
    OPERATOR = "operator", _("operator on the server")
    NOBODY = "nobody", _("not logged in")


class AccessAction(models.TextChoices):
    """The kind of an access: what the request shows or does."""

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


class AccessOutcome(models.TextChoices):
    """How an access ended."""

    SHOWN = "shown", _("shown")
    REFUSED = "refused", _("refused")  # not logged in, or without permission
    FAILED = "failed", _("failed")  # nothing found, a wrong parameter, or an error


# An attribute of the request, and a key of the session: both belong to a break-glass login.
BREAK_GLASS: Final = "annals_break_glass"

# Actions by the end of a route; the first match counts. A route that is in none of these lists has
# the action OTHER.
_ACTIONS_BY_ROUTE_END: Final = (
    ("/compare", AccessAction.COMPARE),
    ("/at", AccessAction.MOMENT),
    ("/fields", AccessAction.FIELD),
    ("/field", AccessAction.FIELD),
    ("/blame", AccessAction.BLAME),
    ("/state", AccessAction.BLAME),
    ("/unmask", AccessAction.UNMASK),
    ("/versions/<str:version>", AccessAction.VERSION),
    ("/versions/<int:version>", AccessAction.VERSION),
    ("/versions", AccessAction.TIMELINE),
)
# Actions by the beginning of a route. Routes are compared and not addresses, which contain data.
_ACTIONS_BY_ROUTE_START: Final = (
    ("at/", AccessAction.MOMENT),
    ("applications/", AccessAction.APPLICATION),
    ("history/<", AccessAction.TIMELINE),
    ("search", AccessAction.SEARCH),
    ("changes", AccessAction.SEARCH),
    ("person/", AccessAction.SEARCH),
    ("gaps/", AccessAction.SEARCH),
    ("client/", AccessAction.SEARCH),
    ("trace", AccessAction.VERSION),
    ("history/", AccessAction.SEARCH),
    ("ingest/quarantined/", AccessAction.QUARANTINE),
    ("quarantine/", AccessAction.QUARANTINE),
    ("journal/", AccessAction.JOURNAL),
)
# Pages without data of applications, of the quarantine or of the journal.
_ROUTES_WITHOUT_ACCESS: Final = (
    "oidc/",
    "break-glass/",
    "api/schema/",
    "api/docs/",
    "api/v1/completeness",
    *(
        f"admin/{admin_route}"
        for admin_route in (
            "login/",
            "logout/",
            "language/",
            "zone/",
            "jsi18n/",
            "completeness/",
            "operations/",
            "days/",
            "history/person/",
            "history/fieldlabel/",
            "auth/",
            "autocomplete/",
            "^(?P<app_label>",
            "(?P<url>",
        )
    ),
)
# The call that counts new versions of a document that the login has already opened.
_COUNT_ROUTE_END: Final = "/<id:id>/newer/"
# The redirect to the start page, the start page, and unknown addresses of the API.
_FIRST_PAGE_ROUTES: Final = ("", "admin/", "api/v1/")


def classify_request(request: HttpRequest) -> AccessAction | None:
    """Return the action of an answered request, or None if the journal gets no entry for it."""
    if getattr(request, BREAK_GLASS, False):
        return AccessAction.LOGIN
    match: ResolverMatch | None = request.resolver_match
    if match is None:
        return None
    if match.route == "admin/" and access_record.get_access_record(request).listed:
        return AccessAction.SEARCH  # the start page lists documents that the login opened
    action = classify_route(match.route)
    is_export = action in (AccessAction.TIMELINE, AccessAction.APPLICATION) and "as" in request.GET
    return AccessAction.EXPORT if is_export and match.route.startswith("admin/") else action


def classify_route(route: str) -> AccessAction | None:
    """Return the action of requests that match a URL pattern, or None. See `classify_request`."""
    if (
        route in _FIRST_PAGE_ROUTES
        or route.startswith(_ROUTES_WITHOUT_ACCESS)
        or route.endswith(_COUNT_ROUTE_END)
    ):
        return None
    relative_route = route.removeprefix("admin/").removeprefix("api/v1/")
    if relative_route.startswith("applications/") and not relative_route.endswith("/at"):
        return AccessAction.APPLICATION
    for end, action in _ACTIONS_BY_ROUTE_END:
        if relative_route.rstrip("/").endswith(end):
            return action
    for beginning, action in _ACTIONS_BY_ROUTE_START:
        if relative_route.startswith(beginning):
            return action
    return AccessAction.OTHER
