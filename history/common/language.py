"""Chooses the language of an answer."""

from django.conf import settings
from django.http import HttpRequest
from django.utils import translation


def choose_language(request: HttpRequest) -> str:
    """Return the code of the language, one of `settings.LANGUAGES`, in which to answer.

    For screens, the cookie decides first, then `ANNALS_LANGUAGE`. The header Accept-Language
    counts only if that setting is "auto": the header says how the browser was installed, not which
    language its user reads.
    """
    if f"{request.path_info}/".startswith("/api/"):
        return translation.get_language_from_request(request)
    cookie = request.COOKIES.get(settings.LANGUAGE_COOKIE_NAME, "")
    if cookie in dict(settings.LANGUAGES):
        return cookie
    setting: str = settings.ANNALS.language
    return translation.get_language_from_request(request) if setting == "auto" else setting
