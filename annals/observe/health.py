"""The probes: /healthz (the process answers) and /readyz (it can serve requests)."""

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
from annals.observe import metrics
from annals.observe.metrics import check_reachable
from history import schema
from history.api import errors
from history.base import clock
from history.base.error_text import describe, is_forbidden
from history.base.language import language_of
from history.daily.days import partition_name

log = logging.getLogger(__name__)
OK = "ok"


class Probes:
    """The first middleware: answers /healthz, /readyz and /metrics, passes on other requests."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response
        self.views = {"/healthz": alive, "/readyz": ready, "/metrics": metrics.view}

    def __call__(self, request: HttpRequest) -> HttpResponse:
        view = self.views.get(request.path)
        if view is None:
            return self.get_response(request)
        if request.method not in ("GET", "HEAD"):
            return HttpResponse(status=405, headers={"Allow": "GET, HEAD"})
        return view(request)


def alive(_: HttpRequest) -> HttpResponse:
    """200 as long as the process answers. Checks nothing else."""
    return JsonResponse({"status": OK})


def ready(_: HttpRequest) -> HttpResponse:
    """200 if every check is `ok`, else 503 with a short text per check."""
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
    good = set(checks.values()) == {OK}
    # The rights are those of this process: of the consumer's it knows nothing.
    answer = {"status": OK if good else "unavailable", "process": "web", "checks": checks}
    return JsonResponse(answer, status=200 if good else 503)


def _database() -> str:
    check_reachable()
    return OK


def _rights() -> str:
    """Whether the login has the rights of `grants`: without one of them nothing may be shown."""
    lacking = grants.missing()
    if not lacking:
        return OK
    log.warning("readiness: the database login of this process lacks: %s", ", ".join(lacking))
    return f"{len(lacking)} missing: run `annals grants --apply` as the owner of the tables"


def _migrations() -> str:
    with connection.cursor() as cursor:
        applied = schema.applied(cursor)
        if missing := schema.missing(applied):
            return f"{len(missing)} not applied"
        why = schema.complaint_of_kinds(cursor)
    if why is None:
        return OK
    log.warning("readiness: %s", why)
    return "a declared kind has no table, or another one"


def _partitions() -> str:
    """Whether every table has a partition for today and for tomorrow."""
    today = clock.now().date()
    wanted = [
        partition_name(table.name, day)
        for table in journal.tables()
        for day in (today, today + timedelta(days=1))
    ]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_class WHERE relispartition AND relname = ANY(%s)", [wanted]
        )
        (found,) = cursor.fetchone() or (0,)
    return OK if found == len(wanted) else f"{len(wanted) - found} missing"


CHECKS: dict[str, Callable[[], str]] = {
    "database": _database,
    "rights": _rights,
    "migrations": _migrations,
    "partitions": _partitions,
}


class Migrated:
    """Middleware: 503 until the migrations of this release are applied, then never again."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response
        self._fits = False

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if not self._fits:
            try:
                why = complaint()
            except (DatabaseError, psycopg.Error) as error:
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
        return schema.of_tables(cursor)


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
