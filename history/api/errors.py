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

DRF calls `answer` for an exception in a view. Django calls what `handler` returns for all others.
"""

import logging
import sys
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils import translation
from django.utils.cache import patch_vary_headers
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from psycopg_pool import PoolTimeout
from rest_framework import exceptions

from history.common import deadline
from history.common.deadline import TooLongError
from history.common.language import choose_language
from history.common.worker_shares import BusyError
from history.documents.exactjson import dumps
from history.policy.need_to_know import NeedToKnowError, RuleFailedError
from history.store.blocks.codec import DamagedBlockError
from history.timeline import (
    ArchiveUnavailableError,
    BadParameterError,
    NotFoundError,
    NoVersionError,
    OlderThanRetentionError,
)

RETRY_SECONDS = 5
_CALLS: Final = "/api/v1/"
REQUEST_ID = "HTTP_X_REQUEST_ID"
VARY = ["Accept-Language", "Authorization", "Cookie"]

log = logging.getLogger(__name__)


class UnknownEntityError(LookupError):
    """There is no kind of this name."""


class UnknownAddressError(LookupError):
    """The API has nothing at this address."""


class JournalUnavailableError(RuntimeError):
    """The access journal cannot be written, so nothing may be shown."""


class UnavailableError(exceptions.APIException):
    """Something that an answer needs cannot be reached now. The message says what."""


# The database is away, or does not do what it should.
DATABASE_OUTAGES: Final = (OperationalError, InterfaceError, PoolTimeout)

# The first match counts. Where MESSAGES has nothing of a code, the exception has the message.
ERROR_KINDS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], int, str], ...] = (
    (TooLongError, 503, "too_long"),
    (BusyError, 503, "busy"),
    (BadParameterError, 400, "bad_parameter"),
    ((SuspiciousOperation, BadRequest), 400, "bad_request"),
    (OlderThanRetentionError, 404, "older_than_retention"),
    (NoVersionError, 404, "not_found"),
    (UnknownEntityError, 404, "unknown_entity"),
    ((UnknownAddressError, Http404), 404, "unknown_address"),
    ((exceptions.NotAuthenticated, exceptions.AuthenticationFailed), 401, "not_authenticated"),
    (NeedToKnowError, 403, "need_to_know"),
    ((PermissionDenied, exceptions.PermissionDenied), 403, "no_permission"),
    # The second: the body of a POST with a session, where its CSRF token is looked for.
    ((exceptions.MethodNotAllowed, exceptions.UnsupportedMediaType), 405, "method_not_allowed"),
    ((UnavailableError, RuleFailedError), 503, "unavailable"),
    (DATABASE_OUTAGES, 503, "unavailable"),
    (ArchiveUnavailableError, 503, "archive_unavailable"),
    (JournalUnavailableError, 503, "journal_unavailable"),
    (DamagedBlockError, 500, "damaged"),
)
MESSAGES: Mapping[str, Promise | str] = {
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


def make_error_answer(error: Exception, context: Mapping[str, Any]) -> HttpResponse:
    """Make the answer to an exception in a view. The EXCEPTION_HANDLER of DRF."""
    # The error came of the end, for example a cancelled statement.
    error = deadline.find_overrun() or error
    status, code = _classify_error(error)
    if status >= 500 and not isinstance(error, TooLongError | BusyError):
        log.error("API: %s", code, exc_info=error)
    details = {"parameter": error.name} if isinstance(error, BadParameterError) else {}
    has_own_message = code not in MESSAGES or isinstance(error, UnavailableError | RuleFailedError)
    message = str(error) if has_own_message else ""
    if isinstance(error, DamagedBlockError):
        message = str(MESSAGES[code]).format(day=error.day)
    if isinstance(error, BusyError) and error.own:
        message = str(_("this login asks too much at once; ask for less at a time, or try again"))
    if isinstance(error, exceptions.NotAuthenticated):
        message = str(_("nobody is logged in; log in, or send a token"))
    reader = getattr(context.get("view"), "reader", None)
    if isinstance(error, NotFoundError) and reader is not None and reader.old.failed:
        message += f"; {_('the old service does not answer, it may have more')}"
    request = context["request"]
    if status in (400, 404) and _ends_with_slash(request.path):
        message = f"{message or MESSAGES[code]}; {_('the address ends with a slash: leave it out')}"
    response = _make_response(request, status, code, message, **details)
    if getattr(error, "auth_header", None):
        response.headers["WWW-Authenticate"] = str(error.auth_header)  # type: ignore[attr-defined]
    if status == 503 and not isinstance(error, TooLongError):
        response.headers["Retry-After"] = str(RETRY_SECONDS)
    return response


def _ends_with_slash(path: str) -> bool:
    """Return whether the address of a call ends with a slash, which none does."""
    return path.startswith(_CALLS) and path.rstrip("/") + "/" != _CALLS and path.endswith("/")


def make_error_handler(
    status: int, code: str, page: Callable[..., HttpResponse]
) -> Callable[..., HttpResponse]:
    """Make a Django error handler: JSON under /api/, otherwise a page; 503 without a database."""

    def handle(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        cause = sys.exception() if status == 500 else None
        api = f"{request.path_info}/".startswith("/api/")
        if isinstance(cause, DATABASE_OUTAGES):
            return (
                make_error_answer(cause, {"request": request})
                if api
                else make_unavailable_page(request)
            )
        return _make_response(request, status, code) if api else page(request, *args, **kwargs)

    return handle


def make_unavailable_page(request: HttpRequest) -> HttpResponse:
    """Make the page that says that the database is away, with the id under which the log has
    more.
    """
    context = {"request_id": request.META.get(REQUEST_ID, "")}
    page = render_to_string("history/unavailable.html", context, request=None)
    return HttpResponse(page, status=503, headers={"Retry-After": str(RETRY_SECONDS)})


def _make_response(
    request: HttpRequest, status: int, code: str, message: str = "", **more: str
) -> HttpResponse:
    # A refused host may come here before the middleware that gives requests their id and language.
    identifier = request.META.setdefault(REQUEST_ID, uuid.uuid4().hex)
    language = choose_language(request)
    with translation.override(language):
        text = message or str(MESSAGES[code])
    error = {"code": code, "message": text, "requestId": identifier}
    response = encode_answer({"status": "error", "error": error | more}, language, status)
    response.headers["X-Request-ID"] = identifier
    return response


def encode_answer(envelope: Mapping[str, object], language: str, status: int = 200) -> HttpResponse:
    """Encode an answer of the API. `language` is that of its texts."""
    response = HttpResponse(dumps(envelope), status=status, content_type="application/json")
    response.headers["Content-Language"] = language
    patch_vary_headers(response, VARY)
    return response


def _classify_error(error: Exception) -> tuple[int, str]:
    for kinds, status, code in ERROR_KINDS:
        if isinstance(error, kinds):
            return status, code
    return 500, "internal_error"
