"""The metrics at /metrics: requests of all web processes, and the state of the store."""

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
from history import distribution, packing
from history.base import clock
from history.base.error_text import describe
from history.database import forms
from history.entities import ENTITIES
from history.gaps import read
from history.gaps import run as gap_runs
from history.metric import filled, single
from history.models import ArchivedDay, FieldLabel
from history.partitions import catalog, state
from history.partitions.plan import Policy
from history.seals.verification import latest
from ingest.completeness import figures, losses
from ingest.models import Ledger, Quarantined
from ingest.quarantine.messages import UNSETTLED

log = logging.getLogger(__name__)
# Fields of history.partitions.state.Status.
TABLES = {
    "bytes": metrics.STORE_BYTES,
    "ahead": metrics.DAYS_AHEAD,
    "missing": metrics.DAYS_MISSING,
    "overdue": metrics.DAYS_OVERDUE,
}


def tables(policy: Policy | None = None, fields: Iterable[str] = TABLES) -> Iterator[Metric]:
    """The partitions of each table. policy: now, without holds."""
    now = policy or Policy.at(clock.now())
    found = state.status(now, journal.tables())
    for field in fields:
        yield filled(TABLES[field], (([each.table], getattr(each, field)) for each in found))


def _to_pack() -> Metric:
    """The days of versions that should be packed."""
    existing = catalog.read(connection, [entity.table for entity in ENTITIES])
    after = settings.ANNALS.pack_after_days
    counts = packing.overdue(existing, clock.now().date(), after)
    return filled(metrics.DAYS_TO_PACK, (([each.table], counts[each.table]) for each in ENTITIES))


def last_run() -> Iterator[Metric]:
    """The latest completed run; no metrics before the first."""
    latest_run = state.latest()
    if latest_run is None:
        return
    yield single(metrics.MAINTAIN_STARTED, latest_run.started_at.timestamp())
    yield single(metrics.MAINTAIN_EXIT_CODE, latest_run.exit_code)
    yield single(metrics.MAINTAIN_HELD, latest_run.held)


def verification() -> Iterator[Metric]:
    """What `partitions verify` has found in the tables that have seals."""
    found = list(latest())
    since = (([table], began.timestamp()) for table, began, _ in found)
    yield filled(metrics.VERIFY_STARTED, since)
    faults = (([table], count) for table, _, count in found if count is not None)
    yield filled(metrics.VERIFY_FAULTS, faults)


def archive() -> Iterator[Metric]:
    """What `partitions verify --archive` has found."""
    archived = ArchivedDay.objects.aggregate(
        faulty=Count("id", filter=~Q(fault="")), oldest=Min("checked_at")
    )
    yield single(metrics.ARCHIVE_FAULTY, archived["faulty"])
    if archived["oldest"] is not None:
        yield single(metrics.ARCHIVE_OLDEST_CHECK, archived["oldest"].timestamp())


def marks() -> Iterator[Metric]:
    """Which fields are masked."""
    marked = FieldLabel.objects.filter(sensitive=True).order_by("entity", "path")
    yield single(metrics.MARKS, crc32(repr([*marked.values_list("entity", "path")]).encode()))


# A command that has never succeeded has no time of a success.
_FAILING = """
    SELECT last_failed_time > coalesce(last_archived_time, '-infinity')
    FROM pg_stat_archiver WHERE current_setting('archive_mode') <> 'off'
"""

# Citus completes or rolls back what it has named (citus.recover_2pc_interval), and nothing else.
_PREPARED_LEFT = """
    SELECT count(*) FROM pg_prepared_xacts
    WHERE database = current_database() AND prepared < now() - interval '5 minutes'
"""


def wal_archive() -> Iterator[Metric]:
    """Whether the WAL leaves the server; nothing where no archive is set."""
    with connection.cursor() as cursor:
        cursor.execute(_FAILING)
        row = cursor.fetchone()
    if row is not None:
        yield single(metrics.WAL_ARCHIVE_FAILING, row[0] is True)


def prepared_left() -> Iterator[Metric]:
    """What distributed transactions left when a node ended; nothing in a plain installation."""
    connection.ensure_connection()
    with connection.wrap_database_errors:
        answers = distribution.answers(connection.connection, _PREPARED_LEFT)
    counts = [int(each.result) for each in answers if each.success]
    if counts:
        yield single(metrics.PREPARED_LEFT, sum(counts))


def gaps() -> Iterator[Metric]:
    """By kind and service: MOST_CLIENTS services have a label of their own, the others are
    `other`. No metrics before the first run."""
    run = gap_runs.latest()
    if run is None:
        return
    found = {(each.entity, each.client_id): each for each in read.sums()}
    yield filled(metrics.GAP_VERSIONS, ((place, each.versions) for place, each in found.items()))
    yield filled(metrics.GAPS, ((place, each.gaps) for place, each in found.items()))
    yield single(metrics.GAPS_STARTED, run.started_at.timestamp())


CONNECT_TIMEOUT_S = 2
# Comparing the ledger with the quarantine reads the whole quarantine, too much for each scrape.
QUARANTINE_CHECK_S = 600


def check_reachable() -> None:
    """Raises psycopg.Error after CONNECT_TIMEOUT_S if no connection can be made."""
    parameters = {**connection.get_connection_params(), "connect_timeout": CONNECT_TIMEOUT_S}
    psycopg.connect(**parameters).close()


class StoreCollector(Collector):
    """annals_store_up and, while it is 1, all other metrics of the store."""

    def __init__(self) -> None:
        self._quarantine_faults = 0
        self._quarantine_check_due = 0.0

    def collect(self) -> Iterator[Metric]:
        try:
            check_reachable()
            families = [
                *self._ledger_and_faults(),
                _quarantine(),
                *tables(),
                _to_pack(),
                _earlier_sessions(),
                *last_run(),
                *archive(),
                *verification(),
                *marks(),
                *wal_archive(),
                *prepared_left(),
                *gaps(),
                _most_opened(),
            ]
        except (DatabaseError, psycopg.Error) as error:
            log.warning("metrics: %s", describe(error))
            families = []
        yield from (single(metrics.STORE_UP, bool(families)), *families)

    def _ledger_and_faults(self) -> Iterator[Metric]:
        entries = figures.entries(count_quarantine=False)
        if time.monotonic() >= self._quarantine_check_due:
            counted = figures.entries()
            differ = [entry for entry in counted if entry.quarantined != entry.in_quarantine]
            self._quarantine_faults = len(differ)
            self._quarantine_check_due = time.monotonic() + QUARANTINE_CHECK_S
        yield from _ledger(entries)
        yield from _losses(entries)
        unread = [*figures.never_read(entries), *figures.unexpectedly_absent(entries)]
        yield single(metrics.STORE_NEVER_READ, len(unread))
        faults = len(figures.faults(entries)) + self._quarantine_faults
        yield single(metrics.STORE_FAULTS, faults)


def _ledger(entries: Sequence[Ledger]) -> Iterator[Metric]:
    """Of the current topics, not of earlier ones of the same name."""
    lag, halted = metrics.STORE_LAG(), metrics.STORE_HALTED()
    seen, end_known = metrics.STORE_SEEN(), metrics.STORE_END_KNOWN()
    read_at = metrics.STORE_READ_AT()
    for entry in entries:
        place = (entry.topic, str(entry.partition))
        if entry.current:
            halted.add_metric(place, entry.halted_at is not None)
        if entry.current and not entry.retired:
            seen.add_metric(place, entry.checked_at.timestamp())
            read_at.add_metric(place, entry.updated_at.timestamp())
            if entry.end_known_at is not None:
                end_known.add_metric(place, entry.end_known_at.timestamp())
            if entry.lag is not None:
                lag.add_metric(place, entry.lag)
    yield from (lag, halted, seen, end_known, read_at)


def _losses(entries: Sequence[Ledger]) -> Iterator[Metric]:
    """From what the consumers recorded, so it goes on when none runs: then the time runs out."""
    found = losses.losses(entries).items()
    places = [((topic, str(partition)), each) for (topic, partition), each in found]
    yield filled(metrics.LOSS_SECONDS, ((place, each.seconds) for place, each in places))
    yield filled(metrics.CATCH_UP_SECONDS, ((place, each.catch_up) for place, each in places))
    yield filled(metrics.KEPT_SECONDS, ((place, each.kept) for place, each in places))


def _earlier_sessions() -> Metric:
    connection.ensure_connection()
    sessions = forms.find_unready(connection.connection)
    return single(metrics.STORE_EARLIER_SESSIONS, len(sessions))


def _quarantine() -> Metric:
    """Only unsettled messages, which are few and have an index: settled ones stay forever."""
    unsettled = Quarantined.objects.filter(status__in=UNSETTLED)
    rows = unsettled.values_list("status", "reason").annotate(count=Count("id"))
    found = (
        ((status, reason), count) for status, reason, count in rows.order_by("status", "reason")
    )
    return filled(metrics.STORE_QUARANTINE, found)


# Programs read for everybody, so their number is of another size.
_MOST_OPENED: Final = """
SELECT actor, max(opened) FROM (
    SELECT CASE actor WHEN 'service' THEN 'program' ELSE 'person' END AS actor,
        count(DISTINCT application) AS opened
    FROM access_journal
    WHERE at > now() - interval '1 hour' AND outcome = 'shown' AND application <> ''
        AND actor IN ('person', 'break-glass', 'service')
    GROUP BY 1, identity
) AS each_login GROUP BY 1
"""


def _most_opened() -> Metric:
    """Of the access journal. One hour of it is read."""
    with connection.cursor() as cursor:
        cursor.execute(_MOST_OPENED)
        found = dict(cursor.fetchall())
    actors = ("person", "program")
    return filled(metrics.MOST_OPENED, (([actor], found.get(actor, 0)) for actor in actors))


STORE = StoreCollector()


def observe(route: str, method: str, status: int, seconds: float) -> None:
    """Count one answered request. seconds: the time it took."""
    # Each label value is kept for as long as the process lives: a client must not invent more.
    method = method if method in metrics.METHODS else "other"
    metrics.REQUESTS.labels(route, method, str(status)).inc()
    metrics.REQUEST_SECONDS.labels(route, method).observe(seconds)


def view(request: HttpRequest) -> HttpResponse:
    """The metrics as text. The client must send the token, if there is one."""
    token = settings.ANNALS.metrics_token
    if token is None and not settings.ANNALS.demo:
        return _refuse("Metrics are closed: set ANNALS_METRICS_TOKEN and send it as Bearer token.")
    if token is not None:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(), token.encode()):
            return _refuse("The Bearer token is missing or wrong.")
    text = b"".join(generate_latest(registry) for registry in _registries())
    return HttpResponse(text, content_type=CONTENT_TYPE_LATEST)


# Where 403 is the answer to nobody who is known; elsewhere it is a look that was refused.
LOGINS: Final = ("oidc/", "break-glass/")


def strangers() -> int:
    """Refused logins, tokens, and requests of no login since the web was started."""
    return int(
        sum(
            sample.value
            for registry in _registries()[:1]
            for family in registry.collect()
            for sample in family.samples
            if sample.name == "annals_http_requests_total"
            and (
                sample.labels["status"] == "401"
                or (sample.labels["status"] == "403" and sample.labels["route"].startswith(LOGINS))
            )
        )
    )


def _registries() -> tuple[CollectorRegistry, CollectorRegistry]:
    state = CollectorRegistry()
    state.register(STORE)
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return REGISTRY, state
    processes = CollectorRegistry()
    MultiProcessCollector(processes)  # type: ignore[no-untyped-call]
    return processes, state


def _refuse(sentence: str) -> HttpResponse:
    response = HttpResponse(f"{sentence}\n", status=401, content_type="text/plain")
    response.headers["WWW-Authenticate"] = 'Bearer realm="metrics"'
    return response
