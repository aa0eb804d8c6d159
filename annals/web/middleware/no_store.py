"""Adds the headers that tell browsers and proxies not to keep answers."""

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from whitenoise.middleware import WhiteNoiseFileResponse  # type: ignore[import-untyped]

from history.common.revalidation import REVALIDATED


class NoStoreMiddleware:
    """Middleware that forbids caches to keep answers, and adds the content policy.

    It is the first middleware, so it sees all answers. Static files may be cached. An answer that
    history.common.revalidation allows may be kept by the client, but not by a proxy.
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
