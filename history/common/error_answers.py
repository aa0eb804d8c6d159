"""Errors as answers: {"status": "error", "error": {"code", "message", "requestId"}}.

| HTTP | code |
|---|---|
| 400 | bad_parameter, with `parameter`; bad_request |
| 401 | not_authenticated |
| 403 | no_permission, need_to_know |
| 404 | unknown_entity, not_found, older_than_retention, unknown_address |
| 405 | method_not_allowed |
| 500 | internal_error, damaged |
| 503 | unavailable, archive_unavailable, journal_unavailable, busy, with Retry-After; too_long |

Here are the texts of all codes, and the errors that any address can have. history.api.errors
answers those of the API, and the middleware for damaged versions its own.
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
    """The error: a code for programs and a message for people."""

    code: str
    message: str
    request_id: str
    parameter: Annotated[str, Meta(description="The parameter that is wrong.")] | UnsetType = UNSET


class ErrorAnswer(Answer, kw_only=True):
    """The answer to a call that fails."""

    status: Literal["error"]
    error: ErrorDetails


class JournalUnavailableError(RuntimeError):
    """The access journal cannot be written, so nothing may be shown."""


class UnavailableError(exceptions.APIException):
    """Something that an answer needs cannot be reached now. The message says what."""


class ErrorKind(NamedTuple):
    """How errors of some classes are answered."""

    errors: tuple[type[Exception], ...]
    status: int
    code: str


# The database cannot be reached, or fails.
DATABASE_OUTAGES: Final = (OperationalError, InterfaceError, PoolTimeout)

# The first kind that fits counts.
ERROR_KINDS: Final = (
    ErrorKind((TooLongError,), 503, "too_long"),
    ErrorKind((BusyError,), 503, "busy"),
    ErrorKind((SuspiciousOperation, BadRequest), 400, "bad_request"),
    ErrorKind((Http404,), 404, "unknown_address"),
    ErrorKind(
        (exceptions.NotAuthenticated, exceptions.AuthenticationFailed), 401, "not_authenticated"
    ),
    ErrorKind((PermissionDenied, exceptions.PermissionDenied), 403, "no_permission"),
    # UnsupportedMediaType comes from the body of a POST with a session, where Django looks for the
    # CSRF token.
    ErrorKind(
        (exceptions.MethodNotAllowed, exceptions.UnsupportedMediaType), 405, "method_not_allowed"
    ),
    ErrorKind((UnavailableError, *DATABASE_OUTAGES), 503, "unavailable"),
    ErrorKind((JournalUnavailableError,), 503, "journal_unavailable"),
)
_INTERNAL_ERROR: Final = ErrorKind((Exception,), 500, "internal_error")

# The texts by code. An error of a code that is not here has a message of its own.
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
    """Return whether the request is answered as one to the API, and not with a page."""
    return f"{request.path_info}/".startswith("/api/")


def make_error_answer(request: HttpRequest, error: Exception) -> HttpResponse:
    """Answer an error that any address can have."""
    # The error may be a consequence of the end of the work, such as a cancelled statement.
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
    """Answer an error, and log it if somebody has to look after it.

    Args:
        message: If it is empty, the text of the code.
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
    """Return whether the address of a call ends with a slash, which none does."""
    return path.startswith(_CALLS) and path.rstrip("/") + "/" != _CALLS and path.endswith("/")


def _make_response(
    request: HttpRequest,
    status: int,
    code: str,
    message: str = "",
    parameter: str | UnsetType = UNSET,
) -> HttpResponse:
    # A refused host may come here before the middleware that gives requests their id and language.
    request_id = request.META.setdefault(REQUEST_ID, uuid.uuid4().hex)
    language = choose_language(request)
    with translation.override(language):
        text = message or str(MESSAGES[code])
    details = ErrorDetails(code=code, message=text, request_id=request_id, parameter=parameter)
    response = encode_answer(ErrorAnswer(status="error", error=details), language, status)
    response.headers["X-Request-ID"] = request_id
    return response


def encode_answer(envelope: Answer, language: str, status: int = 200) -> HttpResponse:
    """Encode an answer of the API. `language` is that of its texts."""
    response = HttpResponse(dumps(envelope), status=status, content_type="application/json")
    response.headers["Content-Language"] = language
    patch_vary_headers(response, _VARY)
    return response


def make_error_handler(
    status: int, code: str, page: Callable[..., HttpResponse]
) -> Callable[..., HttpResponse]:
    """Make a Django error handler: JSON under /api/, otherwise a page; 503 without a database."""

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
    """Make the page that says that the database cannot be reached. It has the id under which the
    log has more.
    """
    context = {"request_id": request.META.get(REQUEST_ID, "")}
    page = render_to_string("history/unavailable.html", context, request=None)
    return HttpResponse(page, status=503, headers={"Retry-After": str(RETRY_SECONDS)})
