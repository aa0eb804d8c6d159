"""Gives each request an id, logs one line about it, and counts it in the metrics."""

import logging
import re
import time
import uuid
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.utils.encoding import escape_uri_path
from django.utils.functional import empty

from annals.access.client_address import get_client_address
from annals.operations import metrics_page
from annals.operations.logs import request_id

REQUEST_ID_HEADER = "X-Request-ID"
ACCEPTED_ID_PATTERN = re.compile(r"[A-Za-z0-9._-]{1,64}")
REFUSED_STATUSES = frozenset({401, 403})

# The name stays whatever the module is called: log collectors select the lines by it.
log = logging.getLogger("annals.web.request_log")


class RequestLogMiddleware:
    """Middleware that gives each request its id and logs it.

    The id comes from the proxy, or it is new. `request.META["HTTP_X_REQUEST_ID"]` and the answer
    have it. The log line has the path and never the query string.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        proxy_id = request.headers.get(REQUEST_ID_HEADER, "")
        identifier = proxy_id if ACCEPTED_ID_PATTERN.fullmatch(proxy_id) else uuid.uuid4().hex
        request.META["HTTP_X_REQUEST_ID"] = identifier
        token = request_id.set(identifier)
        began = time.perf_counter()
        try:
            response = self.get_response(request)
            seconds = time.perf_counter() - began
            # The matching URL pattern: addresses would make ids label values.
            route = request.resolver_match.route if request.resolver_match else "none"
            metrics_page.count_request(route, request.method or "", response.status_code, seconds)
            _log_request(request, response, seconds)
        finally:
            request_id.reset(token)
        response.headers[REQUEST_ID_HEADER] = identifier
        return response


def _log_request(request: HttpRequest, response: HttpResponse, seconds: float) -> None:
    level = logging.WARNING if response.status_code >= 500 else logging.INFO
    log.log(
        level,
        "%s %s",
        request.method,
        escape_uri_path(_path(request)),  # a space in it could begin a field of the line
        extra={
            "status": response.status_code,
            "ms": round(seconds * 1000, 1),
            "user": _get_username(request),
            # The access journal has no entry for a refused request without a login.
            "address": get_client_address(request)
            if response.status_code in REFUSED_STATUSES
            else None,
        },
    )


def _path(request: HttpRequest) -> str:
    """Return the path without the token of a break-glass link: its page has been opened, and the
    link still logs in whoever reads the log."""
    token = request.resolver_match.kwargs.get("token") if request.resolver_match else None
    return request.path.replace(token, "-") if token else request.path


def _get_username(request: HttpRequest) -> str | None:
    """Return the login, or None if the view did not load it: to load it would cost a query."""
    user = vars(request).get("user")
    if user is None or getattr(user, "_wrapped", None) is empty:
        return None
    return str(user.get_username()) or None
