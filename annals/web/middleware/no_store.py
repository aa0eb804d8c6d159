"""Adds the headers that tell browsers and proxies not to keep answers."""

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from whitenoise.middleware import WhiteNoiseFileResponse  # type: ignore[import-untyped]

from history.common.revalidation import REVALIDATED


class NoStoreMiddleware:
    """Middleware that sets the headers `Cache-Control: no-store` and Content-Security-Policy.

    It is the first middleware, so it sees all answers. Static files get neither header. If
    history.common.revalidation has set Cache-Control, so that the browser can keep the answer but a
    proxy cannot, this header is left unchanged.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if not isinstance(response, WhiteNoiseFileResponse):
            if response.headers.get("Cache-Control") != REVALIDATED:
                response.headers["Cache-Control"] = "no-store"
            response.headers["Content-Security-Policy"] = settings.CONTENT_SECURITY_POLICY
        return response
