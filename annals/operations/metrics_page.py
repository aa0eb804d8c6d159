"""Collects the metrics at /metrics: requests of all web processes, and the state of the store."""

import hmac
import logging
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from zlib import crc32

import psycopg
from django.conf import settings
from django.db import Error as DatabaseError
from django.db import connection
from django.db.models import Count, Min, Q
from django.http import HttpRequest, HttpResponse
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from annals import metrics
from annals.access.journal import days as journal
from history.common import clock
from history.common.error_text import describe
from history.common.metric import build_single, fill_family
from history.completeness.gaps import read
from history.completeness.gaps import run as gap_runs
from history.kinds.entities import ENTITIES
from history.models import ArchivedDay, FieldLabel
from history.retention import catalog, packing, runs
from history.retention.plan import PartitionPolicy
from history.retention.seals.verification import load_latest_checks
from history.store import distribution
from history.store.database import forms
from ingest.completeness import ledger_rows, losses
from ingest.models import Ledger, Quarantined
from ingest.quarantine.messages import UNSETTLED

log = logging.getLogger(__name__)
# The metric of each field of history.retention.runs.PartitionStatus.
TABLE_METRICS = {
    "bytes": metrics.STORE_BYTES,
    "ahead": metrics.DAYS_AHEAD,
    "missing": metrics.DAYS_MISSING,
    "overdue": metrics.DAYS_OVERDUE,
}


def measure_tables(
    policy: PartitionPolicy | None = None, fields: Iterable[str] = TABLE_METRICS
) -> Iterator[Metric]:
    """Yield metrics about the partitions of each table that has daily partitions.

    Args:
        policy: Which days should exist. By default, these are the days that the settings ask for
            at this moment, without held days.
        fields: Which metrics to yield, as keys of `TABLE_METRICS`.
    """
    effective_policy = policy or PartitionPolicy.at(clock.now())
    tables = runs.load_statuses(effective_policy, journal.list_day_tables())
    for field in fields:
        yield fill_family(
            TABLE_METRICS[field], (([table.table], getattr(table, field)) for table in tables)
        )


def _count_days_to_pack() -> Metric:
    """Count the days of versions that are not packed although they should be."""
    existing = catalog.read_partitions(connection, [entity.table for entity in ENTITIES])
    pack_after_days = settings.ANNALS.pack_after_days
    counts = packing.count_overdue_days(existing, clock.now().date(), pack_after_days)
    return fill_family(
        metrics.DAYS_TO_PACK, (([entity.table], counts[entity.table]) for entity in ENTITIES)
    )


def report_last_run() -> Iterator[Metric]:
    """Report the latest run of `partitions maintain`, also a failed one.

    Yields nothing before the first run.
    """
    latest_run = runs.load_latest_run()
    if latest_run is None:
        return
    yield build_single(metrics.MAINTAIN_STARTED, latest_run.started_at.timestamp())
    yield build_single(metrics.MAINTAIN_EXIT_CODE, latest_run.exit_code)
    yield build_single(metrics.MAINTAIN_HELD, latest_run.held)


def report_verification() -> Iterator[Metric]:
    """Report the latest results of `partitions verify` for the tables that have seals."""
    verified = list(load_latest_checks())
    started = (([table], began.timestamp()) for table, began, _ in verified)
    yield fill_family(metrics.VERIFY_STARTED, started)
    faults = (([table], count) for table, _, count in verified if count is not None)
    yield fill_family(metrics.VERIFY_FAULTS, faults)


def report_archive() -> Iterator[Metric]:
    """Report the latest results of `partitions verify --archive`."""
    archived = ArchivedDay.objects.aggregate(
        faulty=Count("id", filter=~Q(fault="")), oldest=Min("checked_at")
    )
    yield build_single(metrics.ARCHIVE_FAULTY, archived["faulty"])
    if archived["oldest"] is not None:
        yield build_single(metrics.ARCHIVE_OLDEST_CHECK, archived["oldest"].timestamp())


def hash_marks() -> Iterator[Metric]:
    """Report a checksum of the marked fields, which changes when a mark is set or removed."""
    marked = FieldLabel.objects.filter(sensitive=True).order_by("entity", "path")
    yield build_single(metrics.MARKS, crc32(repr([*marked.values_list("entity", "path")]).encode()))


# If archive_command has never succeeded, last_archived_time is NULL.
_SELECT_WAL_FAILING = """
    SELECT last_failed_time > coalesce(last_archived_time, '-infinity')
    FROM pg_stat_archiver WHERE current_setting('archive_mode') <> 'off'
"""

# Citus itself soon completes the prepared transactions that it has named. See its setting
# citus.recover_2pc_interval.
_COUNT_PREPARED_LEFT = """
    SELECT count(*) FROM pg_prepared_xacts
    WHERE database = current_database() AND prepared < now() - interval '5 minutes'
"""


def report_wal_archive() -> Iterator[Metric]:
    """Report whether PostgreSQL fails to archive its WAL. Yields nothing if archiving is off."""
    with connection.cursor() as cursor:
        cursor.execute(_SELECT_WAL_FAILING)
        row = cursor.fetchone()
    if row is not None:
        yield build_single(metrics.WAL_ARCHIVE_FAILING, row[0] is True)


def count_prepared_left() -> Iterator[Metric]:
    """Count prepared transactions that a failed node left behind. Yields nothing without Citus."""
    connection.ensure_connection()
    with connection.wrap_database_errors:
        answers = distribution.ask_nodes(connection.connection, _COUNT_PREPARED_LEFT)
    counts = [int(answer.result) for answer in answers if answer.success]
    if counts:
        yield build_single(metrics.PREPARED_LEFT, sum(counts))


def count_gaps() -> Iterator[Metric]:
    """Count the version gaps by kind and service. Yields nothing before the first `annals gaps`.

    The services with the most gaps have labels of their own. All others share the label `other`.
    """
    run = gap_runs.get_latest_run()
    if run is None:
        return
    totals = {(total.entity, total.client_id): total for total in read.fetch_sums()}
    yield fill_family(
        metrics.GAP_VERSIONS, ((labels, total.versions) for labels, total in totals.items())
    )
    yield fill_family(metrics.GAPS, ((labels, total.gaps) for labels, total in totals.items()))
    yield build_single(metrics.GAPS_STARTED, run.started_at.timestamp())


CONNECT_TIMEOUT_S = 2
# How often to compare the ledger with the quarantine, which reads the whole quarantine.
QUARANTINE_CHECK_S = 600


def check_reachable() -> None:
    """Check that the database accepts a connection within CONNECT_TIMEOUT_S.

    Raises:
        psycopg.Error: The database does not accept a connection in time.
    """
    parameters = {**connection.get_connection_params(), "connect_timeout": CONNECT_TIMEOUT_S}
    psycopg.connect(**parameters).close()


class StoreCollector(Collector):
    """The collector of annals_store_up and, while this is 1, of all other metrics of the store."""

    def __init__(self) -> None:
        self._quarantine_faults = 0
        self._quarantine_check_due = 0.0

    def collect(self) -> Iterator[Metric]:
        try:
            check_reachable()
            families = [
                *self._report_ledger_and_faults(),
                _count_quarantined(),
                *measure_tables(),
                _count_days_to_pack(),
                _count_earlier_sessions(),
                *report_last_run(),
                *report_archive(),
                *report_verification(),
                *hash_marks(),
                *report_wal_archive(),
                *count_prepared_left(),
                *count_gaps(),
                _measure_most_opened(),
            ]
        except (DatabaseError, psycopg.Error) as error:
            log.warning("the metrics of the store were not collected: %s", describe(error))
            families = []
        yield from (build_single(metrics.STORE_UP, bool(families)), *families)

    def _report_ledger_and_faults(self) -> Iterator[Metric]:
        entries = ledger_rows.load_entries(count_quarantine=False)
        if time.monotonic() >= self._quarantine_check_due:
            counted = ledger_rows.load_entries()
            differing = [entry for entry in counted if entry.quarantined != entry.in_quarantine]
            self._quarantine_faults = len(differing)
            self._quarantine_check_due = time.monotonic() + QUARANTINE_CHECK_S
        yield from _report_ledger(entries)
        yield from _forecast_losses(entries)
        unread = [
            *ledger_rows.find_never_read_topics(entries),
            *ledger_rows.find_unexpectedly_absent_topics(entries),
        ]
        yield build_single(metrics.STORE_NEVER_READ, len(unread))
        faults = len(ledger_rows.find_faults(entries)) + self._quarantine_faults
        yield build_single(metrics.STORE_FAULTS, faults)


def _report_ledger(entries: Sequence[Ledger]) -> Iterator[Metric]:
    """Report the lag and state of each topic partition.

    If a topic was deleted and created again under the same name, only the new one is reported.
    """
    lag, halted = metrics.STORE_LAG(), metrics.STORE_HALTED()
    seen, end_known = metrics.STORE_SEEN(), metrics.STORE_END_KNOWN()
    read_at = metrics.STORE_READ_AT()
    for entry in entries:
        labels = (entry.topic, str(entry.partition))
        if entry.current:
            halted.add_metric(labels, entry.halted_at is not None)
        if entry.current and not entry.retired:
            seen.add_metric(labels, entry.checked_at.timestamp())
            read_at.add_metric(labels, entry.updated_at.timestamp())
            if entry.end_known_at is not None:
                end_known.add_metric(labels, entry.end_known_at.timestamp())
            if entry.lag is not None:
                lag.add_metric(labels, entry.lag)
    yield from (lag, halted, seen, end_known, read_at)


def _forecast_losses(entries: Sequence[Ledger]) -> Iterator[Metric]:
    """Yield metrics that forecast when each topic partition will lose unread messages.

    The forecast uses the figures that consumers recorded last. While no consumer runs, the figures
    stay the same, but the time until the loss becomes shorter.
    """
    forecasts = [
        ((topic, str(partition)), loss)
        for (topic, partition), loss in losses.forecast_losses(entries).items()
    ]
    yield fill_family(
        metrics.LOSS_SECONDS, ((labels, loss.loss_seconds) for labels, loss in forecasts)
    )
    yield fill_family(
        metrics.CATCH_UP_SECONDS, ((labels, loss.catch_up_seconds) for labels, loss in forecasts)
    )
    yield fill_family(
        metrics.KEPT_SECONDS, ((labels, loss.kept_seconds) for labels, loss in forecasts)
    )


def _count_earlier_sessions() -> Metric:
    connection.ensure_connection()
    sessions = forms.find_unready(connection.connection)
    return build_single(metrics.STORE_EARLIER_SESSIONS, len(sessions))


def _count_quarantined() -> Metric:
    """Count the unsettled messages in quarantine by status and reason.

    This is cheap, because PostgreSQL has an index of only the unsettled messages.
    """
    unsettled = Quarantined.objects.filter(status__in=UNSETTLED)
    rows = unsettled.values_list("status", "reason").annotate(count=Count("id"))
    counts = (
        ((status, reason), count) for status, reason, count in rows.order_by("status", "reason")
    )
    return fill_family(metrics.STORE_QUARANTINE, counts)


# A program reads on behalf of many people, so programs are counted apart from people.
_SELECT_MOST_OPENED: Final = """
SELECT actor, max(opened) FROM (
    SELECT CASE actor WHEN 'service' THEN 'program' ELSE 'person' END AS actor,
        count(DISTINCT application) AS opened
    FROM access_journal
    WHERE at > now() - interval '1 hour' AND outcome = 'shown' AND application <> ''
        AND actor IN ('person', 'break-glass', 'service')
    GROUP BY 1, identity
) AS each_login GROUP BY 1
"""


def _measure_most_opened() -> Metric:
    """Measure how many different applications the busiest login opened in the last hour.

    There is one value for the busiest person, and one for the busiest program.
    """
    with connection.cursor() as cursor:
        cursor.execute(_SELECT_MOST_OPENED)
        opened_by_actor = dict(cursor.fetchall())
    actors = ("person", "program")
    return fill_family(
        metrics.MOST_OPENED, (([actor], opened_by_actor.get(actor, 0)) for actor in actors)
    )


STORE_COLLECTOR = StoreCollector()


def count_request(route: str, method: str, status: int, seconds: float) -> None:
    """Count an answered request, which took `seconds`."""
    # The process keeps every value of a label, so a client must not be able to invent values.
    method = method if method in metrics.METHODS else "other"
    metrics.REQUESTS.labels(route, method, str(status)).inc()
    metrics.REQUEST_SECONDS.labels(route, method).observe(seconds)


def show_metrics(request: HttpRequest) -> HttpResponse:
    """Show the metrics as text. If ANNALS_METRICS_TOKEN is set, the client must send it."""
    token = settings.ANNALS.metrics_token
    if token is None and not settings.ANNALS.demo:
        return _refuse("Metrics are closed. Set ANNALS_METRICS_TOKEN, and send it as Bearer token.")
    if token is not None:
        sent_token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(sent_token.encode(), token.encode()):
            return _refuse("The Bearer token is missing or wrong.")
    text = b"".join(generate_latest(registry) for registry in _list_registries())
    return HttpResponse(text, content_type=CONTENT_TYPE_LATEST)


# At these addresses, 403 means that a login was refused. At others, it means that a known login was
# refused access.
LOGIN_ROUTES: Final = ("oidc/", "break-glass/")


def count_anonymous_refusals() -> int:
    """Return how many requests without a known login the web has refused since its start.

    These are refused attempts to log in, and requests with a wrong token or without a login.
    """
    return int(
        sum(
            sample.value
            for registry in _list_registries()[:1]
            for family in registry.collect()
            for sample in family.samples
            if sample.name == "annals_http_requests_total"
            and (
                sample.labels["status"] == "401"
                or (
                    sample.labels["status"] == "403"
                    and sample.labels["route"].startswith(LOGIN_ROUTES)
                )
            )
        )
    )


def _list_registries() -> tuple[CollectorRegistry, CollectorRegistry]:
    state = CollectorRegistry()
    state.register(STORE_COLLECTOR)
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return REGISTRY, state
    processes = CollectorRegistry()
    MultiProcessCollector(processes)  # type: ignore[no-untyped-call]
    return processes, state


def _refuse(sentence: str) -> HttpResponse:
    response = HttpResponse(f"{sentence}\n", status=401, content_type="text/plain")
    response.headers["WWW-Authenticate"] = 'Bearer realm="metrics"'
    return response
