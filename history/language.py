"""The language of an answer: Russian, unless this browser was switched to another one; of the API
English."""

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import translation

API_LANGUAGE = "en"
Next = Callable[[HttpRequest], HttpResponse]


def chosen_language(get_response: Next) -> Next:
    """Middleware: LANGUAGE_CODE, or what set_language put into the cookie.

    Django's LocaleMiddleware would follow Accept-Language, which says how somebody installed the
    browser, not what the clerk reads. The messages of the API are for programmers, and Annals has
    them in English only, so those of Django and DRF are in English there too.
    """
    known = dict(settings.LANGUAGES)

    def respond(request: HttpRequest) -> HttpResponse:
        wanted = request.COOKIES.get(settings.LANGUAGE_COOKIE_NAME, "")
        language = wanted if wanted in known else settings.LANGUAGE_CODE
        if f"{request.path_info}/".startswith("/api/"):
            language = API_LANGUAGE
        with translation.override(language):
            request.LANGUAGE_CODE = language
            response = get_response(request)
            response.headers.setdefault("Content-Language", language)
            return response

    return respond
