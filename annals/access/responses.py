"""What every answer says to browsers and proxies, and whom a demo answers."""

from collections.abc import Callable
from typing import Final

from django.http import HttpRequest, HttpResponse
from whitenoise.middleware import WhiteNoiseFileResponse  # type: ignore[import-untyped]

from annals.access.address import LOOPBACK, client, within


class NoStore:
    """The first middleware: no answer may be kept anywhere, but static files."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if not isinstance(response, WhiteNoiseFileResponse):
            response.headers["Cache-Control"] = "no-store"
        return response


DEMO_REFUSAL: Final = (
    "This is a demo with well-known logins, because DATABASE_URL is unset. It answers this machine "
    "only.\nSet DATABASE_URL for production, or ANNALS_DEMO=true for an open demo.\n"
)


class ThisMachineOnly:
    """Middleware: 403 for everything where the other end of the connection is elsewhere."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if within(client(request.META.get("REMOTE_ADDR", ""), "", ()), LOOPBACK):
            return self.get_response(request)
        return HttpResponse(DEMO_REFUSAL, status=403, content_type="text/plain; charset=utf-8")
