"""What every answer says to browsers and proxies."""

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from whitenoise.middleware import WhiteNoiseFileResponse  # type: ignore[import-untyped]


class NoStore:
    """The first middleware: no answer but static files may be kept; each has the content policy."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if not isinstance(response, WhiteNoiseFileResponse):
            response.headers["Cache-Control"] = "no-store"
            response.headers["Content-Security-Policy"] = settings.CONTENT_SECURITY_POLICY
        return response
