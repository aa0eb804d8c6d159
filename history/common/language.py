"""Chooses the language of an answer."""

from django.conf import settings
from django.http import HttpRequest
from django.utils import translation


def choose_language(request: HttpRequest) -> str:
    """Return the code of the language in which to answer, one of `settings.LANGUAGES`.

    For the API, the cookie decides first, then the header Accept-Language. For screens, the cookie
    decides first, then the setting `ANNALS_LANGUAGE`. Screens use the header only if this setting
    is "auto", because a browser sends the language in which it was installed. The user can have a
    different language.
    """
    if f"{request.path_info}/".startswith("/api/"):
        return translation.get_language_from_request(request)
    cookie = request.COOKIES.get(settings.LANGUAGE_COOKIE_NAME, "")
    if cookie in dict(settings.LANGUAGES):
        return cookie
    setting: str = settings.ANNALS.language
    return translation.get_language_from_request(request) if setting == "auto" else setting
