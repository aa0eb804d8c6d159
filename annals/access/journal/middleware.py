"""No journal, no answer: the row is written before the answer leaves."""

from __future__ import annotations

import logging
from collections.abc import Callable

import psycopg
from django.conf import settings
from django.db import Error
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string

from annals import metrics
from annals.access.journal.entry import entries
from annals.access.journal.words import Actor, Outcome, action_of
from annals.access.journal.write import JournalError, write
from history import looks
from history.api import errors
from history.base.error_text import describe
from history.looks import Look

log = logging.getLogger(__name__)

REFUSED, ANSWERED = (metrics.JOURNAL_FAILURES.labels(each) for each in ("refused", "answered"))


class Journal:
    """Middleware: writes a row of each look. Its place is outside of sessions and views, whose
    errors are answers by then, and inside of what gives the request its id.

    A streamed answer has its row before the first byte.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        with looks.noted() as look:
            response = self.get_response(request)
            action = action_of(request)
            if action is None or _shows_nothing(request, response):
                return response
            try:
                rows = list(entries(request, response, action, look))
                # Nobody was shown nothing: the log of requests has it.
                if rows[0].actor is not Actor.NOBODY or rows[0].outcome is Outcome.SHOWN:
                    write(rows)
            except (JournalError, Error, psycopg.Error) as error:
                return _without_journal(request, response, error, look)
        return response


def _shows_nothing(request: HttpRequest, response: HttpResponse) -> bool:
    """OPTIONS asks which methods there are. A refused one is an attempt."""
    return request.method == "OPTIONS" and response.status_code == 204


def _without_journal(
    request: HttpRequest, response: HttpResponse, error: Exception, look: Look
) -> HttpResponse:
    log.error("the access journal cannot be written: %s", describe(error))
    if settings.ANNALS.journal_failure == "answer" and not look.unmasked:
        ANSWERED.inc()
        return response
    REFUSED.inc()
    if response.status_code >= 500:
        return response  # it shows nothing, and says more of the cause
    response.close()
    if request.path_info.startswith("/api/"):
        return errors.answer(errors.JournalUnavailableError(str(error)), {"request": request})
    page = render_to_string("access/no_journal.html", request=None)
    return HttpResponse(page, status=503, headers={"Retry-After": str(errors.RETRY_SECONDS)})
