"""Makes the answers to errors: {"status": "error", "error": {"code", "message", "requestId"}}.

| HTTP | code |
|---|---|
| 400 | bad_parameter, with `parameter`; bad_request |
| 401 | not_authenticated |
| 403 | no_permission, need_to_know |
| 404 | unknown_entity, not_found, older_than_retention, unknown_address |
| 405 | method_not_allowed |
| 500 | internal_error, damaged |
| 503, with Retry-After | unavailable, archive_unavailable, journal_unavailable, busy |
| 503, without Retry-After | too_long |

This module has the texts of all codes, and answers the errors that can happen at any address.
history.api.errors answers the errors that can happen only in the API. The middleware for damaged
versions makes the answer with the code `damaged`.
"""

import logging
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple

from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils import translation
from django.utils.cache import patch_vary_headers
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from msgspec import UNSET, Meta, UnsetType
from psycopg_pool import PoolTimeout
from rest_framework import exceptions

from history.common import deadline
from history.common.answer_types import Answer
from history.common.deadline import TooLongError
from history.common.language import choose_language
from history.common.worker_shares import BusyError
from history.documents.exactjson import dumps

RETRY_SECONDS: Final = 5
REQUEST_ID: Final = "HTTP_X_REQUEST_ID"
_CALLS: Final = "/api/v1/"
_VARY: Final = ["Accept-Language", "Authorization", "Cookie"]

log = logging.getLogger(__name__)


class ErrorDetails(Answer, kw_only=True):
    """An error in an answer: a code for programs and a message for people."""

    code: str
    message: str
    request_id: str
    parameter: Annotated[str, Meta(description="The parameter that is wrong.")] | UnsetType = UNSET


class ErrorAnswer(Answer, kw_only=True):
    """The answer to a call that fails."""

    status: Literal["error"]
    error: ErrorDetails


class JournalUnavailableError(RuntimeError):
    """Raised if the access journal cannot be written, so that nothing may be shown."""


class UnavailableError(exceptions.APIException):
    """Raised if a server that an answer needs cannot be reached. The message names the server."""


class ErrorKind(NamedTuple):
    """The status and code of the answer to all errors of certain classes."""

    errors: tuple[type[Exception], ...]
    status: int
    code: str


# The errors that are raised if the database cannot be reached, or fails.
DATABASE_OUTAGES: Final = (OperationalError, InterfaceError, PoolTimeout)

# An error is answered as the first of these kinds that has its class.
ERROR_KINDS: Final = (
    ErrorKind((TooLongError,), 503, "too_long"),
    ErrorKind((BusyError,), 503, "busy"),
    ErrorKind((SuspiciousOperation, BadRequest), 400, "bad_request"),
    ErrorKind((Http404,), 404, "unknown_address"),
    ErrorKind(
        (exceptions.NotAuthenticated, exceptions.AuthenticationFailed), 401, "not_authenticated"
    ),
    ErrorKind((PermissionDenied, exceptions.PermissionDenied), 403, "no_permission"),
    # Django looks for the CSRF token in the body of a POST with a session, and raises
    # UnsupportedMediaType if it cannot read the body.
    ErrorKind(
        (exceptions.MethodNotAllowed, exceptions.UnsupportedMediaType), 405, "method_not_allowed"
    ),
    ErrorKind((UnavailableError, *DATABASE_OUTAGES), 503, "unavailable"),
    ErrorKind((JournalUnavailableError,), 503, "journal_unavailable"),
)
_INTERNAL_ERROR: Final = ErrorKind((Exception,), 500, "internal_error")

# The usual message of each code. With any other code, the message is the text of the error.
MESSAGES: Final[Mapping[str, Promise]] = {
    "bad_request": _("the request is malformed: its host, its size or its parameters"),
    "need_to_know": _(
        "this application is open only to those who work on it; the attempt is recorded"
    ),
    "no_permission": _("this login has no permission to read this"),
    "unknown_address": _("the API has no such address; see /api/docs/"),
    "method_not_allowed": _("this address takes GET, HEAD and OPTIONS only"),
    "archive_unavailable": _("the archive cannot be read; try again later, or without it"),
    "journal_unavailable": _(
        "the access journal cannot be written now, so nothing is shown; try again in a moment"
    ),
    "too_long": _(
        "the answer takes longer than a request may; ask for less: a smaller pageSize, a shorter"
        " period (from, to), one entity instead of the application"
    ),
    "busy": _("too many requests of this kind at once; try again in a moment"),
    "unavailable": _("the database cannot be reached; try again in a moment"),
    "damaged": _(
        "stored versions of {day} are damaged and cannot be read; report it to the administrator of"
        " Annals, who restores this day from a backup"
    ),
    "internal_error": _("an unexpected error; the log has its cause under this requestId"),
}


def is_api_request(request: HttpRequest) -> bool:
    """Return whether the request is for the API, and not for a page."""
    return f"{request.path_info}/".startswith("/api/")


def make_error_answer(request: HttpRequest, error: Exception) -> HttpResponse:
    """Make the answer to an error that can happen at any address."""
    # PostgreSQL cancels the running statement at the deadline. The answer then names the deadline,
    # and not the error of the statement.
    error = deadline.find_overrun() or error
    kind = find_error_kind(error, ERROR_KINDS) or _INTERNAL_ERROR
    message = "" if kind.code in MESSAGES else str(error)
    if isinstance(error, UnavailableError):
        message = str(error)
    if isinstance(error, BusyError) and error.by_same_login:
        message = str(_("this login asks too much at once; ask for less at a time, or try again"))
    if isinstance(error, exceptions.NotAuthenticated):
        message = str(_("nobody is logged in; log in, or send a token"))
    return answer_error(request, error, kind.status, kind.code, message)


def find_error_kind(error: Exception, kinds: Iterable[ErrorKind]) -> ErrorKind | None:
    """Return the first kind that the error belongs to, or None."""
    return next((kind for kind in kinds if isinstance(error, kind.errors)), None)


def answer_error(
    request: HttpRequest,
    error: Exception,
    status: int,
    code: str,
    message: str = "",
    parameter: str | UnsetType = UNSET,
) -> HttpResponse:
    """Make the answer to an error, and log the error if an operator has to know of it.

    Args:
        message: The message of the answer; empty for the usual message of `code`.
        parameter: The name of the parameter that is wrong.
    """
    if status >= 500 and not isinstance(error, TooLongError | BusyError):
        log.error("API: %s", code, exc_info=error)
    if status in (400, 404) and _ends_with_slash(request.path):
        message = f"{message or MESSAGES[code]}; {_('the address ends with a slash: leave it out')}"
    response = _make_response(request, status, code, message, parameter)
    if getattr(error, "auth_header", None):
        response.headers["WWW-Authenticate"] = str(error.auth_header)  # type: ignore[attr-defined]
    if status == 503 and not isinstance(error, TooLongError):
        response.headers["Retry-After"] = str(RETRY_SECONDS)
    return response


def _ends_with_slash(path: str) -> bool:
    """Return whether `path` is an address of the API with a slash too many at its end."""
    return path.startswith(_CALLS) and path.rstrip("/") + "/" != _CALLS and path.endswith("/")


def _make_response(
    request: HttpRequest,
    status: int,
    code: str,
    message: str = "",
    parameter: str | UnsetType = UNSET,
) -> HttpResponse:
    # A request with a refused host is answered before a middleware gives it an id and a language.
    request_id = request.META.setdefault(REQUEST_ID, uuid.uuid4().hex)
    language = choose_language(request)
    with translation.override(language):
        text = message or str(MESSAGES[code])
    details = ErrorDetails(code=code, message=text, request_id=request_id, parameter=parameter)
    response = encode_answer(ErrorAnswer(status="error", error=details), language, status)
    response.headers["X-Request-ID"] = request_id
    return response


def encode_answer(envelope: Answer, language: str, status: int = 200) -> HttpResponse:
    """Encode an answer of the API. `language` is the language of the texts in it."""
    response = HttpResponse(dumps(envelope), status=status, content_type="application/json")
    response.headers["Content-Language"] = language
    patch_vary_headers(response, _VARY)
    return response


def make_error_handler(
    status: int, code: str, page: Callable[..., HttpResponse]
) -> Callable[..., HttpResponse]:
    """Make an error handler for Django.

    The handler answers requests for the API with JSON, and other requests with a page. If the
    database cannot be reached, it answers 503.
    """

    def handle(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        cause = sys.exception() if status == 500 else None
        if isinstance(cause, DATABASE_OUTAGES):
            if is_api_request(request):
                return make_error_answer(request, cause)
            return make_unavailable_page(request)
        if is_api_request(request):
            return _make_response(request, status, code)
        return page(request, *args, **kwargs)

    return handle


def make_unavailable_page(request: HttpRequest) -> HttpResponse:
    """Make the page that says that the database cannot be reached, with the request's id."""
    context = {"request_id": request.META.get(REQUEST_ID, "")}
    page = render_to_string("history/unavailable.html", context, request=None)
    return HttpResponse(page, status=503, headers={"Retry-After": str(RETRY_SECONDS)})
