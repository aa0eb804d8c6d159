"""Refuses requests while the tables are not those of this release."""

import logging
from collections.abc import Callable

import psycopg
from django.db import Error as DatabaseError
from django.http import HttpRequest, HttpResponse
from django.utils import translation
from django.utils.translation import gettext as _

from annals.operations.health import explain_schema_mismatch
from history.common import error_answers
from history.common.error_text import describe
from history.common.language import choose_language

log = logging.getLogger(__name__)


class SchemaMiddleware:
    """Middleware that answers 503 until the migrations of this release are applied."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response
        self._fits = False

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if not self._fits:
            try:
                mismatch = explain_schema_mismatch()
            except (DatabaseError, psycopg.Error) as error:
                # The next query of the request fails too, and its error is answered.
                log.warning("the applied migrations were not checked: %s", describe(error))
                return self.get_response(request)
            if mismatch is not None:
                log.error("%s", mismatch)
                return _respond_unavailable(request)
            self._fits = True
        return self.get_response(request)


def _respond_unavailable(request: HttpRequest) -> HttpResponse:
    with translation.override(choose_language(request)):
        error = error_answers.UnavailableError(
            _("the database is not at the version of this release yet; try again in a moment")
        )
        if error_answers.is_api_request(request):
            return error_answers.make_error_answer(request, error)
        page = HttpResponse(str(error), status=503, content_type="text/plain; charset=utf-8")
    page.headers["Retry-After"] = str(error_answers.RETRY_SECONDS)
    return page
