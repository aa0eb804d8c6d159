"""Answers nothing from tables that are not those of this release, rather than with errors."""

from __future__ import annotations

import logging
from collections.abc import Callable

import psycopg
from django.db import Error, connection
from django.http import HttpRequest, HttpResponse
from django.utils import translation
from django.utils.translation import gettext as _

from history import schema
from history.api import errors
from history.base.error_text import describe
from history.base.language import language_of

log = logging.getLogger(__name__)


class Migrated:
    """Middleware: 503 until the migrations of this release are applied, then never again. It asks
    the database with each request until then."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response
        self._fits = False

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if not self._fits:
            try:
                why = complaint()
            except (Error, psycopg.Error) as error:
                # Who asks the database next says that it does not answer.
                log.warning("migrations: %s", describe(error))
                return self.get_response(request)
            if why is not None:
                log.error("%s", why)
                return _unavailable(request)
            self._fits = True
        return self.get_response(request)


def complaint() -> str | None:
    """What history.schema says of the database. Raises the errors of the database."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('django_migrations') IS NOT NULL")
        (there,) = cursor.fetchone() or (False,)
        if there:
            cursor.execute(schema.APPLIED)
        why = schema.complaint(cursor.fetchall() if there else [])
        return why or schema.complaint_of_kinds(cursor)


def _unavailable(request: HttpRequest) -> HttpResponse:
    with translation.override(language_of(request)):
        error = errors.UnavailableError(
            _("the database is not at the version of this release yet; try again in a moment")
        )
        if f"{request.path_info}/".startswith("/api/"):
            return errors.answer(error, {"request": request})
        page = HttpResponse(str(error), status=503, content_type="text/plain; charset=utf-8")
    page.headers["Retry-After"] = str(errors.RETRY_SECONDS)
    return page
