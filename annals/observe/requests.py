"""Gives every request an id, writes one log line about it and counts it in the metrics."""

import logging
import re
import time
import uuid
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.utils.encoding import escape_uri_path
from django.utils.functional import empty

from annals.access.address import address_of
from annals.observe import metrics
from annals.observe.logs import request_id

HEADER = "X-Request-ID"
ACCEPTED = re.compile(r"[A-Za-z0-9._-]{1,64}")
REFUSED = frozenset({401, 403})

log = logging.getLogger(__name__)


class RequestLog:
    """Takes the request id from the proxy or makes one, for `request.META["HTTP_X_REQUEST_ID"]` and
    the answer. The log line has the path, never the query string."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        given = request.headers.get(HEADER, "")
        identifier = given if ACCEPTED.fullmatch(given) else uuid.uuid4().hex
        request.META["HTTP_X_REQUEST_ID"] = identifier
        token = request_id.set(identifier)
        began = time.perf_counter()
        try:
            response = self.get_response(request)
            seconds = time.perf_counter() - began
            # The URL pattern that matched, so that ids do not become label values.
            route = request.resolver_match.route if request.resolver_match else "none"
            metrics.observe(route, request.method or "", response.status_code, seconds)
            _write(request, response, seconds)
        finally:
            request_id.reset(token)
        response.headers[HEADER] = identifier
        return response


def _write(request: HttpRequest, response: HttpResponse, seconds: float) -> None:
    level = logging.WARNING if response.status_code >= 500 else logging.INFO
    log.log(
        level,
        "%s %s",
        request.method,
        escape_uri_path(_path(request)),  # a space in it could begin a field of the line
        extra={
            "status": response.status_code,
            "ms": round(seconds * 1000, 1),
            "user": _user(request),
            # Who is refused has no row in the access journal if nobody knows the login.
            "address": address_of(request) if response.status_code in REFUSED else None,
        },
    )


def _path(request: HttpRequest) -> str:
    """Return the path without the token of a break-glass link: its page has been opened, and the
    link still logs in whoever reads the log."""
    token = request.resolver_match.kwargs.get("token") if request.resolver_match else None
    return request.path.replace(token, "-") if token else request.path


def _user(request: HttpRequest) -> str | None:
    """The login, if the view has loaded it; loading it here would cost a query."""
    user = vars(request).get("user")
    if user is None or getattr(user, "_wrapped", None) is empty:
        return None
    return str(user.get_username()) or None
