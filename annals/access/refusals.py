"""Refuses requests whose parameters nobody reads, before a view and the access journal fail at
them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core.exceptions import BadRequest, TooManyFieldsSent
from django.http import HttpRequest, HttpResponse
from django.views import defaults

from history.api import errors


class TooManyParameters:
    """Middleware: 400 for more parameters than DATA_UPLOAD_MAX_NUMBER_FIELDS. Its place is inside
    of the log-in, so that the journal can say whose request it was."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, *_: Any) -> HttpResponse | None:
        """The answer instead of the view's; None: the view may answer."""
        try:
            _read = request.GET
        except TooManyFieldsSent as error:
            if request.path_info.startswith("/api/"):
                return errors.answer(BadRequest(), {"request": request})
            return defaults.bad_request(request, error)
        return None
