"""A demo that nobody asked for answers clients on this machine only, however it was started."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from django.http import HttpRequest, HttpResponse

from annals.access.address import LOOPBACK, client, within

TEXT: Final = (
    "This is a demo with well-known logins, because DATABASE_URL is unset. It answers this machine "
    "only.\nSet DATABASE_URL for production, or ANNALS_DEMO=true for an open demo.\n"
)


class ThisMachineOnly:
    """Middleware: 403 for everything where the other end of the connection is elsewhere. What a
    proxy says of its client does not count. A Unix socket has no such end, so it is elsewhere."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if within(client(request.META.get("REMOTE_ADDR", ""), "", ()), LOOPBACK):
            return self.get_response(request)
        return HttpResponse(TEXT, status=403, content_type="text/plain; charset=utf-8")
