"""The probes /healthz (the process answers) and /readyz (it can serve requests)."""

import logging
from collections.abc import Callable
from datetime import timedelta

import psycopg
from django.db import Error as DatabaseError
from django.db import connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import translation
from django.utils.translation import gettext as _

from annals.access import grants
from annals.access.journal import days as journal
from annals.operations import metrics_page
from annals.operations.metrics_page import check_reachable
from history.api import errors
from history.common import clock, schema
from history.common.error_text import describe, is_forbidden
from history.common.language import choose_language
from history.store.days.days import build_partition_name

log = logging.getLogger(__name__)
OK = "ok"


class ProbeMiddleware:
    """Middleware that answers /healthz, /readyz and /metrics, and passes other requests on."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response
        self.views = {
            "/healthz": show_health,
            "/readyz": show_readiness,
            "/metrics": metrics_page.show_metrics,
        }

    def __call__(self, request: HttpRequest) -> HttpResponse:
        view = self.views.get(request.path)
        if view is None:
            return self.get_response(request)
        if request.method not in ("GET", "HEAD"):
            return HttpResponse(status=405, headers={"Allow": "GET, HEAD"})
        return view(request)


def show_health(_: HttpRequest) -> HttpResponse:
    """Answer 200. It shows that the process answers, and nothing else is checked."""
    return JsonResponse({"status": OK})


def show_readiness(_: HttpRequest) -> HttpResponse:
    """Answer 200 if each check is `ok`, or 503 with a short text for each check."""
    checks = {}
    for name, check in CHECKS.items():
        try:
            checks[name] = check()
        except (DatabaseError, psycopg.Error) as error:
            log.warning("readiness: %s", describe(error))
            if not is_forbidden(error):
                checks[name] = "unreachable"
                break
            checks[name] = "the database login may not read them"
    is_ready = set(checks.values()) == {OK}
    # The rights are those of this process. The consumer has a login of its own.
    answer = {"status": OK if is_ready else "unavailable", "process": "web", "checks": checks}
    return JsonResponse(answer, status=200 if is_ready else 503)


def _check_database() -> str:
    check_reachable()
    return OK


def _check_rights() -> str:
    """Check that the login has the rights of the web. Without one of them requests fail."""
    lacking = grants.find_missing_rights()
    if not lacking:
        return OK
    log.warning("readiness: the database login of this process lacks: %s", ", ".join(lacking))
    return f"{len(lacking)} missing: run `annals grants --apply` as the owner of the tables"


def _check_migrations() -> str:
    with connection.cursor() as cursor:
        applied = schema.load_applied_migrations(cursor)
        if missing := schema.find_missing_migrations(applied):
            return f"{len(missing)} not applied"
        complaint = schema.explain_kind_tables(cursor)
    if complaint is None:
        return OK
    log.warning("readiness: %s", complaint)
    return "a declared kind has no table, or another one"


def _check_partitions() -> str:
    """Check that each table has partitions for today and tomorrow."""
    today = clock.now().date()
    names = [
        build_partition_name(table.name, day)
        for table in journal.list_day_tables()
        for day in (today, today + timedelta(days=1))
    ]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_class WHERE relispartition AND relname = ANY(%s)", [names]
        )
        (count,) = cursor.fetchone() or (0,)
    return OK if count == len(names) else f"{len(names) - count} missing"


CHECKS: dict[str, Callable[[], str]] = {
    "database": _check_database,
    "rights": _check_rights,
    "migrations": _check_migrations,
    "partitions": _check_partitions,
}


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
                # The next query of the request fails, too, and its error is answered.
                log.warning("migrations: %s", describe(error))
                return self.get_response(request)
            if mismatch is not None:
                log.error("%s", mismatch)
                return _respond_unavailable(request)
            self._fits = True
        return self.get_response(request)


def explain_schema_mismatch() -> str | None:
    """Return why the tables do not fit this release, or None. Raises errors of the database."""
    with connection.cursor() as cursor:
        return schema.explain_tables(cursor)


def _respond_unavailable(request: HttpRequest) -> HttpResponse:
    with translation.override(choose_language(request)):
        error = errors.UnavailableError(
            _("the database is not at the version of this release yet; try again in a moment")
        )
        if f"{request.path_info}/".startswith("/api/"):
            return errors.make_error_answer(error, {"request": request})
        page = HttpResponse(str(error), status=503, content_type="text/plain; charset=utf-8")
    page.headers["Retry-After"] = str(errors.RETRY_SECONDS)
    return page
