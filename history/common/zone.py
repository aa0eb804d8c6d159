"""The time zone in which a viewer reads times: the browser's, Moscow or UTC."""

from functools import cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.http import url_has_allowed_host_and_scheme

CHOICE_COOKIE: Final = "annals_zone"  # the cookie with one of CHOICES
BROWSER_COOKIE: Final = "annals_tz"  # the cookie with the browser's zone, which annals.js writes
CHOICES: Final = {"mine": "", "moscow": "Europe/Moscow", "utc": "UTC"}
YEAR_S: Final = 365 * 24 * 3600


@cache
def list_zone_names() -> frozenset[str]:
    """Return the names of all time zones. Cached: zoneinfo reads hundreds of files for them."""
    return frozenset(available_timezones())


def get_choice(request: HttpRequest) -> str:
    """Return the zone that the viewer chose, one of the keys of CHOICES."""
    choice = request.COOKIES.get(CHOICE_COOKIE, "")
    return choice if choice in CHOICES else "mine"


def find_zone(request: HttpRequest) -> ZoneInfo:
    """Return the zone in which to show times; UTC if the browser's zone is not known yet."""
    name = CHOICES[get_choice(request)] or request.COOKIES.get(BROWSER_COOKIE, "")
    return ZoneInfo(name if name in list_zone_names() else "UTC")


def remember_choice(request: HttpRequest) -> HttpResponse:
    """Store the chosen zone in a cookie, and redirect to the page that has the form."""
    next_address = request.POST.get("next", "")
    is_ours = url_has_allowed_host_and_scheme(
        next_address, {request.get_host()}, request.is_secure()
    )
    response = HttpResponseRedirect(next_address if is_ours else "/")
    choice = request.POST.get("zone", "")
    if choice in CHOICES:
        response.set_cookie(
            CHOICE_COOKIE, choice, YEAR_S, secure=request.is_secure(), httponly=True, samesite="Lax"
        )
    return response
