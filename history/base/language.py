"""The language and the time zone of an answer."""

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone, translation

from history.base import zone

Next = Callable[[HttpRequest], HttpResponse]


def language_of(request: HttpRequest) -> str:
    """One of LANGUAGES. By Accept-Language only where the settings say so: it tells how somebody
    installed the browser."""
    if f"{request.path_info}/".startswith("/api/"):
        return translation.get_language_from_request(request)
    wanted = request.COOKIES.get(settings.LANGUAGE_COOKIE_NAME, "")
    if wanted in dict(settings.LANGUAGES):
        return wanted
    given: str = settings.ANNALS.language
    return translation.get_language_from_request(request) if given == "auto" else given


def chosen_language(get_response: Next) -> Next:
    """Middleware: texts and labels of the answer are in language_of(request), moments on its pages
    in zone.of(request)."""

    def respond(request: HttpRequest) -> HttpResponse:
        language = language_of(request)
        with translation.override(language), timezone.override(zone.of(request)):
            request.LANGUAGE_CODE = language
            response = get_response(request)
            response.headers.setdefault("Content-Language", language)
            return response

    return respond
