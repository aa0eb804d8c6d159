"""Writes the access journal's entries of a request before its answer is sent."""

import logging
import sys
from collections.abc import Callable

import psycopg
from django.conf import settings
from django.db import Error
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string

from annals import metrics
from annals.access.journal.actions import AccessOutcome, ActorKind, classify_request
from annals.access.journal.entry import generate_entries
from annals.access.journal.write import JournalError, write_entries
from history.common import error_answers
from history.common.error_text import describe
from history.policy.access_record import AccessRecord

log = logging.getLogger(__name__)

REFUSED, ANSWERED = (
    metrics.JOURNAL_FAILURES.labels(outcome) for outcome in ("refused", "answered")
)


class JournalMiddleware:
    """Middleware that writes the journal entries of a request before its answer is sent.

    In MIDDLEWARE it comes after RequestLogMiddleware, which gives the request an id, and before
    SessionMiddleware.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        access = request.look = AccessRecord()  # type: ignore[attr-defined] # for history.policy.access_record.get_access_record
        response = self.get_response(request)
        action = classify_request(request)
        # OPTIONS shows only the methods of an address. A refused OPTIONS counts as an attempt.
        is_options_answer = request.method == "OPTIONS" and response.status_code == 204
        if action is None or is_options_answer:
            return response
        try:
            rows = list(generate_entries(request, response, action, access))
            # Refused requests without a login are in the request log only.
            if rows[0].actor is not ActorKind.NOBODY or rows[0].outcome is AccessOutcome.SHOWN:
                write_entries(rows, sys.stdout)
        except (JournalError, Error, psycopg.Error) as error:
            return _respond_without_journal(request, response, error, access)
        return response


def _respond_without_journal(
    request: HttpRequest, response: HttpResponse, error: Exception, access: AccessRecord
) -> HttpResponse:
    log.error("an answer has no entry in the access journal: %s", describe(error))
    if settings.ANNALS.journal_failure == "answer" and not access.unmasked:
        ANSWERED.inc()
        return response
    REFUSED.inc()
    if response.status_code >= 500:
        return response  # an error, which shows no data and names the cause
    response.close()
    if request.path_info.startswith("/api/"):
        return error_answers.make_error_answer(
            request, error_answers.JournalUnavailableError(str(error))
        )
    page = render_to_string("access/no_journal.html", request=None)
    return HttpResponse(page, status=503, headers={"Retry-After": str(error_answers.RETRY_SECONDS)})
