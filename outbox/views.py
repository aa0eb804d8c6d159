"""What the outbox answers: metrics for Prometheus, and versions for a consumer that misses them."""

from __future__ import annotations

import logging
from threading import BoundedSemaphore
from typing import Final

from django.apps import apps
from django.db import DatabaseError, router, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse, QueryDict
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_safe

from outbox import bearer, repair, status
from outbox.conf import ID_LENGTH, conf
from outbox.errors import WrongSettings
from outbox.inbox import status as inbox_metrics
from outbox.inbox import status as inbox_status
from outbox.inbox.models import Waiting
from outbox.models import Document
from outbox.status import CONTENT_TYPE, render

logger = logging.getLogger(__name__)

NEWEST: Final = 2**31 - 1
# Answers of this process at a time: each holds megabytes and a connection to the database.
_places: Final = BoundedSemaphore(2)


@require_safe
def metrics(_: HttpRequest) -> HttpResponse:
    """Counts and names of relays and handlers; nothing of documents or messages."""
    text = ""
    if apps.is_installed("outbox"):
        text += render(status.read(router.db_for_read(Document)))
    if apps.is_installed("outbox.inbox"):
        text += inbox_metrics.render(inbox_status.read(router.db_for_read(Waiting)))
    return HttpResponse(text, content_type=CONTENT_TYPE)


@transaction.non_atomic_requests
@never_cache
@require_GET
def versions(request: HttpRequest) -> HttpResponseBase:
    """Versions `from` to `to` of the document `id` of a kind `entity`, for who has the token. See
    docs/outbox.md."""
    refused = _refusal(request)
    if refused is not None:
        return refused
    try:
        # UTF-8, whatever charset the Content-Type names: request.GET takes any codec of Python.
        given = QueryDict(request.META.get("QUERY_STRING", ""), encoding="utf-8")
        document, first, last = _asked(given)
    except ValueError as error:
        return _error(400, str(error))
    if not _places.acquire(blocking=False):
        return _error(429, "this process gives other versions now", ("Retry-After", "1"))
    try:
        # Not from a replica: what that does not have yet is not gone.
        answer = repair.read(router.db_for_write(Document), document, first, last)
    except DatabaseError:
        logger.exception("versions cannot be read")
        return _error(503, "the database does not answer", ("Retry-After", "30"))
    finally:
        _places.release()
    return HttpResponse(answer.lines(), content_type="application/jsonl")


def _refusal(request: HttpRequest) -> HttpResponse | None:
    file = conf().resend_token_file
    if file is None:
        return _error(404, 'no versions are given: settings.OUTBOX has no "RESEND_TOKEN_FILE"')
    try:
        accepted = bearer.tokens(file)
    except WrongSettings as error:
        logger.error("no versions are given: %s", error)  # noqa: TRY400 - it says all
        return _error(503, "the token of this service cannot be read")
    if bearer.allows(request.headers.get("Authorization", ""), accepted):
        return None
    return _error(401, "this needs the token of the service", ("WWW-Authenticate", "Bearer"))


def _asked(given: QueryDict) -> tuple[str, int, int]:
    """Document, first and last version. Raises ValueError with a sentence."""
    once = all(len(values) == 1 for _, values in given.lists())
    if sorted(given) != ["entity", "from", "id", "to"] or not once:
        raise ValueError("the parameters are entity, id, from and to, each once")
    entity, id, *ends = (str(given[name]) for name in ("entity", "id", "from", "to"))
    if entity not in conf().topics:
        raise ValueError("entity is not one of this service")
    if not 0 < len(id) <= ID_LENGTH or "\0" in id:
        raise ValueError(f"id is a text of 1 to {ID_LENGTH} characters")
    first, last = map(_number, ends)
    if not 0 <= first <= last <= NEWEST:
        raise ValueError(f"from and to are numbers of versions, 0 to {NEWEST}, in this order")
    return f"{entity}/{id}", first, last


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else -1


def _error(code: int, text: str, *headers: tuple[str, str]) -> HttpResponse:
    answer = JsonResponse({"error": text}, status=code)
    for name, value in headers:
        answer[name] = value
    return answer
