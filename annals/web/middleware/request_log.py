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

# A fixed name, independent of the module's: log collectors select the lines by it.
log = logging.getLogger("annals.web.request_log")


class RequestLogMiddleware:
    """Middleware that gives each request its id and logs it.

    The id comes from the proxy, or is generated. It is in `request.META["HTTP_X_REQUEST_ID"]` and
    in the answer. The log line has the path but not the query string.
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
            # The label is the URL pattern. With addresses, ids would become values of the label.
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
        escape_uri_path(_get_path(request)),  # a space could look like the start of a field
        extra={
            "status": response.status_code,
            "ms": round(seconds * 1000, 1),
            "user": _get_username(request),
            # The access journal has no entries for refused requests without a login.
            "address": get_client_address(request)
            if response.status_code in REFUSED_STATUSES
            else None,
        },
    )


def _get_path(request: HttpRequest) -> str:
    """Return the path without the token of a break-glass link.

    A link stays valid after its page is opened, so a reader of the log could log in with it.
    """
    token = request.resolver_match.kwargs.get("token") if request.resolver_match else None
    return request.path.replace(token, "-") if token else request.path


def _get_username(request: HttpRequest) -> str | None:
    """Return the login, or None if the view did not load it. Loading it would take a query."""
    user = vars(request).get("user")
    if user is None or getattr(user, "_wrapped", None) is empty:
        return None
    return str(user.get_username()) or None
