"""What every answer with personal data says to browsers and proxies."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

# Addresses that show no data: their answers may be kept.
OPEN = ("/api/schema/", "/api/docs/")


class NoStore:
    """Middleware: no answer may be kept anywhere, errors included. Static files are served before
    it and may be kept."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if request.path not in OPEN:
            response.headers["Cache-Control"] = "no-store"
        return response
