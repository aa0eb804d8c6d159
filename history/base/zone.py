"""The time zone of the reader: the browser's, Moscow or UTC."""

from functools import cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.http import url_has_allowed_host_and_scheme

CHOSEN: Final = "annals_zone"  # the cookie with one of CHOICES
BROWSER: Final = "annals_tz"  # the cookie with the browser's zone, which annals.js writes
CHOICES: Final = {"mine": "", "moscow": "Europe/Moscow", "utc": "UTC"}
YEAR_S: Final = 365 * 24 * 3600


@cache
def names() -> frozenset[str]:
    """The zones that there are. zoneinfo reads hundreds of files for them each time."""
    return frozenset(available_timezones())


def chosen(request: HttpRequest) -> str:
    """One of CHOICES."""
    choice = request.COOKIES.get(CHOSEN, "")
    return choice if choice in CHOICES else "mine"


def of(request: HttpRequest) -> ZoneInfo:
    """The zone in which times are shown; UTC where the browser has not said its own."""
    name = CHOICES[chosen(request)] or request.COOKIES.get(BROWSER, "")
    return ZoneInfo(name if name in names() else "UTC")


def choose(request: HttpRequest) -> HttpResponse:
    """Remember the choice of a form and go back to its page."""
    back = request.POST.get("next", "")
    ours = url_has_allowed_host_and_scheme(back, {request.get_host()}, request.is_secure())
    response = HttpResponseRedirect(back if ours else "/")
    choice = request.POST.get("zone", "")
    if choice in CHOICES:
        response.set_cookie(
            CHOSEN, choice, YEAR_S, secure=request.is_secure(), httponly=True, samesite="Lax"
        )
    return response
