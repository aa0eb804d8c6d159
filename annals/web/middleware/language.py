"""Sets the language of an answer, and the time zone of the moments on its page."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.utils import timezone, translation

from history.common import zone
from history.common.language import choose_language


class LanguageMiddleware:
    """Middleware that answers in the language and the time zone that the viewer has chosen."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        language = choose_language(request)
        with translation.override(language), timezone.override(zone.find_zone(request)):
            request.LANGUAGE_CODE = language
            response = self.get_response(request)
            response.headers.setdefault("Content-Language", language)
            return response
