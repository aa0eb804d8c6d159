"""The probes /healthz (the process answers) and /readyz (it can serve requests)."""

import logging
from collections.abc import Callable
from datetime import timedelta

import psycopg
from django.db import Error as DatabaseError
from django.db import connection
from django.http import HttpRequest, HttpResponse, JsonResponse

from annals.access import grants
from annals.access.journal import days as journal
from annals.operations.metrics_page import check_reachable
from history.common import clock, schema
from history.common.error_text import describe, is_forbidden
from history.store import distribution
from history.store.days.days import build_partition_name

log = logging.getLogger(__name__)
OK = "ok"


def show_health(_: HttpRequest) -> HttpResponse:
    """Answer 200 to show that the process answers. Checks nothing else."""
    return JsonResponse({"status": OK})


def show_readiness(_: HttpRequest) -> HttpResponse:
    """Answer 200 if each check is `ok`, or 503 with a short text for each check."""
    checks = {}
    for name, check in CHECKS.items():
        try:
            checks[name] = check()
        except (DatabaseError, psycopg.Error) as error:
            log.warning("readiness: the check %s failed: %s", name, describe(error))
            if not is_forbidden(error):
                checks[name] = "unreachable"
                break
            checks[name] = "the database login lacks the right to check this"
    is_ready = set(checks.values()) == {OK}
    # This checks the database login of the web server. The consumer has a different login.
    answer = {"status": OK if is_ready else "unavailable", "process": "web", "checks": checks}
    return JsonResponse(answer, status=200 if is_ready else 503)


def _check_database() -> str:
    check_reachable()
    return OK


def _check_rights() -> str:
    """Return OK, or how many rights of a web process the database login of this process lacks."""
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
    return "a declared kind has no table, or a table with other columns"


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


def explain_schema_mismatch() -> str | None:
    """Return a sentence on why the tables do not fit this release, or None if they fit.

    Raises:
        django.db.Error: The database fails.
    """
    with connection.cursor() as cursor:
        try:
            distribution.refuse_worker(connection.connection)
        except distribution.WorkerAddressError as error:
            return f"{error}."
        return schema.explain_tables(cursor)
