"""Answers probes and scrapes of metrics first, before anything can fail or take time."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from annals.operations import metrics_page
from annals.operations.health import show_health, show_readiness


class ProbeMiddleware:
    """Middleware that answers /healthz, /readyz and /metrics, and passes other requests on."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response
        self.views = {
            "/healthz": show_health,
            "/readyz": show_readiness,
            "/metrics": metrics_page.show_metrics,
        }

    def __call__(self, request: HttpRequest) -> HttpResponse:
        view = self.views.get(request.path)
        if view is None:
            return self.get_response(request)
        if request.method not in ("GET", "HEAD"):
            return HttpResponse(status=405, headers={"Allow": "GET, HEAD"})
        return view(request)
