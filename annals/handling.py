"""How a request is handled: its texts are UTF-8, and it has a deadline."""

import logging
import time
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils import translation

from annals import metrics
from history.addresses import RAW_PATH
from history.api import errors
from history.base.language import language_of
from history.blocks.form import DamagedBlockError
from history.requests import deadline
from history.requests.deadline import TooLongError, Work
from history.requests.worker_shares import BusyError, metered

log = logging.getLogger(__name__)


class Utf8Request(WSGIRequest):
    """A request whose texts are UTF-8, whatever charset its Content-Type names. Django takes any
    codec of Python for them. At some of these it fails before any middleware runs."""

    def __init__(self, environ: dict[str, Any]) -> None:
        raw = environ.get("PATH_INFO", "")
        super().__init__(environ)
        self.META[RAW_PATH] = raw  # a byte that is no UTF-8 is %FF in Django's own

    @property
    def encoding(self) -> None:
        """None: as the settings say, which is UTF-8."""

    @encoding.setter
    def encoding(self, _: str | None) -> None:
        """The charset of the Content-Type is ignored."""


class Deadlines:
    """Middleware: work that computes ends at the deadline of its request, at its next check. A
    statement ends by PostgreSQL's statement_timeout (annals.wsgi). Its place is inside of the
    access journal and outside of all else that asks the database."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        work = Work(time.monotonic() + settings.ANNALS.request_seconds)
        with deadline.limited(work), metered(work):
            answer = self.get_response(request)
        if not work.over or answer.status_code < 500:
            return answer
        answer.close()
        metrics.STOPPED.inc()
        return _page(request, TooLongError())

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """Before Django logs the error of a view as a fault of Annals."""
        found = deadline.reason() or error
        if isinstance(found, errors.OUTAGES):
            log.error("screen: the database is unavailable", exc_info=found)
        elif isinstance(found, DamagedBlockError):
            log.error("damaged", exc_info=found)
        elif not isinstance(found, TooLongError | BusyError):
            return None
        return _page(request, found)


def _page(request: HttpRequest, why: Exception) -> HttpResponse:
    if f"{request.path_info}/".startswith("/api/"):
        with translation.override(language_of(request)):
            return errors.answer(why, {"request": request})
    if isinstance(why, errors.OUTAGES):
        return errors.unavailable(request)
    if isinstance(why, DamagedBlockError):
        text = render_to_string("history/damaged.html", {"day": why.day}, request=None)
        return HttpResponse(text, status=500)
    name = "busy" if isinstance(why, BusyError) else "too_long"
    context = {"own": getattr(why, "own", False)}
    page = HttpResponse(render_to_string(f"history/{name}.html", context, request=None), status=503)
    if isinstance(why, BusyError):
        page.headers["Retry-After"] = str(errors.RETRY_SECONDS)
    return page
