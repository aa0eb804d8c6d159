"""The language and the time zone of an answer."""

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone, translation

from history.common import zone

GetResponse = Callable[[HttpRequest], HttpResponse]


def choose_language(request: HttpRequest) -> str:
    """One of LANGUAGES. By Accept-Language only where the settings say so: it tells how somebody
    installed the browser."""
    if f"{request.path_info}/".startswith("/api/"):
        return translation.get_language_from_request(request)
    cookie = request.COOKIES.get(settings.LANGUAGE_COOKIE_NAME, "")
    if cookie in dict(settings.LANGUAGES):
        return cookie
    setting: str = settings.ANNALS.language
    return translation.get_language_from_request(request) if setting == "auto" else setting


def chosen_language(get_response: GetResponse) -> GetResponse:
    """Middleware: texts and labels of the answer are in language_of(request), moments on its pages
    in zone.of(request)."""

    def respond(request: HttpRequest) -> HttpResponse:
        language = choose_language(request)
        with translation.override(language), timezone.override(zone.find_zone(request)):
            request.LANGUAGE_CODE = language
            response = get_response(request)
            response.headers.setdefault("Content-Language", language)
            return response

    return respond
