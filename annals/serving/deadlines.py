"""Every request has a deadline, and ends when its client leaves."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from django.conf import settings
from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils import translation

from annals import metrics
from annals.serving import watch
from annals.serving.visit import VISIT, Visit
from history import deadline
from history.api import errors
from history.base.language import language_of
from history.deadline import ClientLeftError, Deadline, StoppedError
from history.shares import BusyError, metered

log = logging.getLogger(__name__)

TOO_LONG, LEFT = (metrics.STOPPED.labels(each) for each in ("too_long", "client_left"))
# A client that leaves is no reason to leave a change half done.
STREAM_S: Final = 2.0
ONLY_READ: Final = ("GET", "HEAD")


class Deadlines:
    """Middleware. Its place is inside of the access journal, whose row is written in any case, and
    outside of all else that asks the database."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        visit: Visit = request.META.get(VISIT) or Visit()
        limit = Deadline(visit.arrived + settings.ANNALS.request_seconds)
        guard = watch.Guard(limit, connections["default"])
        answer = self._within(limit, guard, visit, request)
        if guard.doubtful:
            # The access journal, outside of this, still writes its row on this connection.
            close = answer.close

            def closing() -> None:
                guard.give_up()
                close()

            answer.close = closing  # type: ignore[method-assign]
        return answer

    def _within(
        self, limit: Deadline, guard: watch.Guard, visit: Visit, request: HttpRequest
    ) -> HttpResponse:
        with deadline.limited(limit), metered(limit), watch.over(guard):
            if request.method in ONLY_READ:
                visit.when_left(guard.client_left)
            try:
                # It may have waited for a thread until its time was over.
                answer = None if limit.why else self.get_response(request)
            finally:
                visit.when_left(None)
        if answer is not None and answer.streaming:
            # It ends itself in time, unless its reader is too slow.
            visit.until = time.monotonic() + settings.ANNALS.download_seconds + STREAM_S
        why = limit.why
        if why is None or (answer is not None and answer.status_code < errors.CLIENT_LEFT):
            return answer  # type: ignore[return-value] # None only with a reason
        if answer is not None:
            answer.close()
        (LEFT if why is ClientLeftError else TOO_LONG).inc()
        return _page(request, why())

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """Before Django logs the error of a view as a fault of Annals."""
        found = deadline.reason() or error
        if isinstance(found, errors.OUTAGES):
            log.error("screen: the database is unavailable", exc_info=found)
        elif not isinstance(found, StoppedError | BusyError):
            return None
        return _page(request, found)


def _page(request: HttpRequest, why: Exception) -> HttpResponse:
    if f"{request.path_info}/".startswith("/api/"):
        with translation.override(language_of(request)):
            return errors.answer(why, {"request": request})
    if isinstance(why, errors.OUTAGES):
        return errors.unavailable()
    name = "busy" if isinstance(why, BusyError) else "too_long"
    page = HttpResponse(render_to_string(f"history/{name}.html", request=None), status=503)
    if isinstance(why, BusyError):
        page.headers["Retry-After"] = str(errors.RETRY_SECONDS)
    if isinstance(why, ClientLeftError):
        page.status_code = errors.CLIENT_LEFT
    return page
