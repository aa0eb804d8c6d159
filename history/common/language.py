"""Chooses the language of an answer."""

from django.conf import settings
from django.http import HttpRequest
from django.utils import translation


def choose_language(request: HttpRequest) -> str:
    """Return the code of the language in which to answer, one of `settings.LANGUAGES`.

    For the API, the cookie decides first, then the header Accept-Language. For screens, the cookie
    decides first, then `ANNALS_LANGUAGE`. The header counts for screens only if this setting is
    "auto": it says how the browser was installed, and not which language its user reads.
    """
    if f"{request.path_info}/".startswith("/api/"):
        return translation.get_language_from_request(request)
    cookie = request.COOKIES.get(settings.LANGUAGE_COOKIE_NAME, "")
    if cookie in dict(settings.LANGUAGES):
        return cookie
    setting: str = settings.ANNALS.language
    return translation.get_language_from_request(request) if setting == "auto" else setting
