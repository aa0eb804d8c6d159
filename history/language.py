"""The language of an answer: Russian, unless this browser was switched to another one."""

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import translation

Next = Callable[[HttpRequest], HttpResponse]


def chosen_language(get_response: Next) -> Next:
    """Middleware: LANGUAGE_CODE, or what set_language put into the cookie.

    Django's LocaleMiddleware would follow Accept-Language, which says how somebody installed the
    browser, not what the clerk reads.
    """
    known = dict(settings.LANGUAGES)

    def respond(request: HttpRequest) -> HttpResponse:
        wanted = request.COOKIES.get(settings.LANGUAGE_COOKIE_NAME, "")
        language = wanted if wanted in known else settings.LANGUAGE_CODE
        with translation.override(language):
            request.LANGUAGE_CODE = language
            response = get_response(request)
            response.headers.setdefault("Content-Language", language)
            return response

    return respond
