"""What every answer says to browsers and proxies, and whom a demo answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from csp.constants import HEADER
from csp.middleware import CSPMiddleware
from csp.utils import build_policy
from django.http import HttpRequest, HttpResponse
from whitenoise.middleware import WhiteNoiseFileResponse  # type: ignore[import-untyped]

from annals.access.address import LOOPBACK, client, within

# What a view sets on its answer for a policy of its own.
_OWN: Final = frozenset({"_csp_config", "_csp_exempt", "_csp_replace", "_csp_update"})


class NoStore:
    """The first middleware: no answer may be kept anywhere, errors of the other middleware
    included. Only static files may be kept."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if not isinstance(response, WhiteNoiseFileResponse):
            response.headers["Cache-Control"] = "no-store"
        return response


class Policy(CSPMiddleware):
    """django-csp's, which makes the header anew for each answer; almost all have the same one."""

    def __init__(self, get_response: Any) -> None:
        super().__init__(get_response)
        self._policy = build_policy()

    def process_response(self, request: HttpRequest, response: Any) -> Any:
        if _OWN.isdisjoint(vars(response)):
            response.headers.setdefault(HEADER, self._policy)
            return response
        return super().process_response(request, response)


DEMO_REFUSAL: Final = (
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
        return HttpResponse(DEMO_REFUSAL, status=403, content_type="text/plain; charset=utf-8")
