"""The metrics at /metrics: requests of all web processes, and the state of the store.

The state is read from the database at each scrape. So every web process gives the same answer,
and a consumer that hangs is visible too.
"""

import hmac
import os
from collections.abc import Iterable

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from prometheus_client import (
    REGISTRY,
    CollectorRegistry,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.multiprocess import MultiProcessCollector

from annals import metrics
from annals.observe.store_metrics import StoreCollector

STORE = StoreCollector()


def observe(route: str, method: str, status: int, seconds: float) -> None:
    """Count one answered request. seconds: the time it took."""
    # Each label value is kept for as long as the process lives: a client must not invent more.
    method = method if method in metrics.METHODS else "other"
    metrics.REQUESTS.labels(route, method, str(status)).inc()
    metrics.REQUEST_SECONDS.labels(route, method).observe(seconds)


def view(request: HttpRequest) -> HttpResponse:
    """The metrics as text. The client must send the token; in a demo without a token it need
    not."""
    token = settings.ANNALS.metrics_token
    if token is None and not settings.ANNALS.demo:
        return _refuse("Metrics are closed: set ANNALS_METRICS_TOKEN and send it as Bearer token.")
    if token is not None:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(), token.encode()):
            return _refuse("The Bearer token is missing or wrong.")
    text = b"".join(generate_latest(registry) for registry in _registries())
    return HttpResponse(text, content_type=CONTENT_TYPE_LATEST)


def _registries() -> Iterable[CollectorRegistry]:
    state = CollectorRegistry()
    state.register(STORE)
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return REGISTRY, state
    processes = CollectorRegistry()
    MultiProcessCollector(processes)  # type: ignore[no-untyped-call]
    return processes, state


def _refuse(sentence: str) -> HttpResponse:
    response = HttpResponse(f"{sentence}\n", status=401, content_type="text/plain")
    response.headers["WWW-Authenticate"] = 'Bearer realm="metrics"'
    return response
