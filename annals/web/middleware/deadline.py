"""Middleware that ends the work for a request at its deadline, and makes error pages.

The error pages are for errors that are not a fault of the view, such as an outage of the database.
"""

import logging
import time
from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils import translation

from annals import metrics
from history.common import deadline, error_answers
from history.common.deadline import RequestWork, TooLongError
from history.common.language import choose_language
from history.common.worker_shares import BusyError, meter_cost
from history.store.blocks.codec import DamagedBlockError

log = logging.getLogger(__name__)


class DeadlineMiddleware:
    """Middleware that ends the work for a request at its deadline.

    Python code ends at its next deadline check. A statement ends at PostgreSQL's statement_timeout,
    which annals.wsgi sets. Only the access journal is outside this middleware: its entry is written
    even after the deadline.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        work = RequestWork(time.monotonic() + settings.ANNALS.request_seconds)
        with deadline.run_as_work(work), meter_cost(work):
            answer = self.get_response(request)
        if not work.is_over or answer.status_code < 500:
            return answer
        answer.close()
        metrics.STOPPED.inc()
        return _render_error(request, TooLongError())

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """Return the answer for an error that ended a view, or None for an unknown error.

        Known errors are an outage of the database, a damaged block, an overrun deadline and too
        much work at once. Without this answer, Django would log such an error as a fault of Annals.
        """
        cause = deadline.find_overrun() or error
        if isinstance(cause, error_answers.DATABASE_OUTAGES):
            log.error("screen: the database is unavailable", exc_info=cause)
        elif isinstance(cause, DamagedBlockError):
            log.error("screen: a block is damaged", exc_info=cause)
        elif not isinstance(cause, TooLongError | BusyError):
            return None
        return _render_error(request, cause)


def _render_error(request: HttpRequest, error: Exception) -> HttpResponse:
    if error_answers.is_api_request(request):
        with translation.override(choose_language(request)):
            if not isinstance(error, DamagedBlockError):
                return error_answers.make_error_answer(request, error)
            text = str(error_answers.MESSAGES["damaged"]).format(day=error.day)
            return error_answers.answer_error(request, error, 500, "damaged", text)
    if isinstance(error, error_answers.DATABASE_OUTAGES):
        return error_answers.make_unavailable_page(request)
    if isinstance(error, DamagedBlockError):
        text = render_to_string("history/damaged.html", {"day": error.day}, request=None)
        return HttpResponse(text, status=500)
    name = "busy" if isinstance(error, BusyError) else "too_long"
    context = {"own": getattr(error, "by_same_login", False)}
    page = HttpResponse(render_to_string(f"history/{name}.html", context, request=None), status=503)
    if isinstance(error, BusyError):
        page.headers["Retry-After"] = str(error_answers.RETRY_SECONDS)
    return page
