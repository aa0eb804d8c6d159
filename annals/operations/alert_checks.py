"""Finds the problems that the page Operations shows.

Each check reads the same metrics as one alert of Prometheus in docker/prometheus/rules.yaml. Alerts
that need earlier samples, or metrics of other processes, have no check here.
tests/db/test_operations.py compares the checks with the alerts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from operator import eq, gt, lt
from typing import Final

from django.conf import settings
from django.utils.functional import Promise
from django.utils.html import format_html
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from prometheus_client.core import Metric

from annals.metrics import TABLE
from annals.operations.days import get_table_title
from annals.operations.jobs import CronJob
from history.common import clock
from history.common.consumer_silence import SILENT, Silence, find_silence
from history.common.moment_filter import when
from history.store.quarantine_reasons import REASONS
from ingest.completeness.losses import NEAR_SECONDS

MAX_LISTED: Final = 3
# The same time as in the alert AnnalsDiskFills, which measures the host of PostgreSQL.
DISK_FULL_SOON: Final = timedelta(days=3)
FIVE_MINUTES: Final = timedelta(minutes=5)
LabelValues = tuple[str, ...]
MetricValues = dict[str, dict[LabelValues, float]]


@dataclass(frozen=True, slots=True)
class Alert:
    """A check for one problem, and the texts about the problem on the page "Operations"."""

    alert: str  # the name of the alert in Prometheus
    page: bool  # whether somebody must act at once, even at night
    # returns the topic partitions, tables and so on that have the problem
    find_affected: Callable[[MetricValues], Iterable[str]]
    problem: Promise  # says what is wrong
    remedy: Promise  # says what helps
    url: str  # the URL name of the page to look at, or empty
    # returns the topic partitions and so on that have had the problem only for a short time
    find_affected_early: Callable[[MetricValues], Iterable[str]] = lambda _: ()
    affected: Sequence[str] = ()  # what one of the two functions found
    begun: bool = False  # whether the problem has just begun

    @property
    def unlisted_count(self) -> int:
        """The number of entries of `affected` that are too many for the page to list."""
        return max(0, len(self.affected) - MAX_LISTED)

    @property
    def runbook(self) -> str:
        """The address of the alert's section in the runbook. Empty without ANNALS_RUNBOOK_URL."""
        base = settings.ANNALS.runbook_url
        return f"{base}#{self.alert.lower()}" if base else ""


_COMPARISONS: Final[Mapping[str, Callable[[float, float], bool]]] = {"==": eq, ">": gt, "<": lt}


@dataclass(frozen=True, slots=True)
class Threshold:
    """A rule for the samples of a metric, such as `annals_store_up == 0`.

    A threshold is a function: it returns the metric labels of the samples that satisfy the rule.
    """

    name: str
    sign: str
    limit: float

    def __call__(self, values: MetricValues) -> list[str]:
        is_beyond = _COMPARISONS[self.sign]
        samples = values[self.name].items()
        return sorted(
            _format_labels(labels) for labels, value in samples if is_beyond(value, self.limit)
        )


def _find_near_losses(values: MetricValues) -> Iterable[str]:
    kept_seconds = values["annals_kept_seconds"]
    for labels, seconds in values["annals_loss_seconds"].items():
        if seconds < min(NEAR_SECONDS, 0.5 * kept_seconds[labels]):
            yield _format_labels(labels)


def _find_slow_catch_up(values: MetricValues) -> Iterable[str]:
    loss = values["annals_loss_seconds"]
    for labels, seconds in values["annals_catch_up_seconds"].items():
        if seconds > loss[labels]:
            yield _format_labels(labels)


def _format_labels(labels: LabelValues) -> str:
    """Return the labels of a metric sample as a text: `topic[3]` for a topic partition.

    A label that is the name of a table becomes the title of this table.
    """
    if len(labels) == 2 and labels[1].isdigit():
        return f"{labels[0]}[{labels[1]}]"
    return " ".join(get_table_title(label) if label in TABLE else label for label in labels)


def _find_silences(values: MetricValues) -> dict[LabelValues, Silence]:
    seen, end_known = (
        {labels: datetime.fromtimestamp(value, UTC) for labels, value in values[name].items()}
        for name in (
            "annals_store_seen_timestamp_seconds",
            "annals_store_end_known_timestamp_seconds",
        )
    )
    now = clock.now()
    silences = {
        labels: find_silence(seen.get(labels, now), end_known.get(labels), now)
        for labels in {*seen, *end_known}
    }
    return {
        labels: partition_silence
        for labels, partition_silence in silences.items()
        if partition_silence
    }


def _make_silence_check(brokers: bool, allowed: timedelta) -> Callable[[MetricValues], list[str]]:
    """Return a function that lists the topic partitions that have been silent for too long.

    If all topic partitions are silent, the list has one text that stands for all of them.

    Args:
        brokers: Whose silence to find. True: the brokers do not answer. False: no consumer reports
            about the topic partition.
        allowed: How long a silence may last before it is listed.
    """

    def find_silent_partitions(values: MetricValues) -> list[str]:
        since = {
            labels: partition_silence.since
            for labels, partition_silence in _find_silences(values).items()
            if partition_silence.brokers is brokers
            and partition_silence.since < clock.now() - allowed
        }
        if len(since) < max(2, len(values["annals_store_seen_timestamp_seconds"])):
            return sorted(map(_format_labels, since))
        at = when(max(since.values()))
        return [format_html(gettext("all partitions, since {at}"), at=at)]

    return find_silent_partitions


def _find_stuck_partitions(values: MetricValues) -> Iterable[str]:
    """Find topic partitions in which nothing was read for 15 minutes although messages wait.

    The oldest unread message must also have waited for 15 minutes. Otherwise a message that has
    just arrived after a quiet time would count. Silent topic partitions have alerts of their own.
    """
    quarter_ago = clock.now().timestamp() - 900
    not_read = Threshold("annals_store_read_timestamp_seconds", "<", quarter_ago)(values)
    lag, kept_seconds = values["annals_store_lag"], values["annals_kept_seconds"]
    behind = {
        _format_labels(labels)
        for labels, seconds in values["annals_loss_seconds"].items()
        if lag.get(labels)
        and not values["annals_store_halted"].get(labels)
        and kept_seconds[labels] - seconds > 900
    }
    return sorted(behind & {*not_read} - {*map(_format_labels, _find_silences(values))})


def _find_tables_to_pack(values: MetricValues) -> Iterable[str]:
    """Find the tables that have days to pack after the latest run of `partitions maintain`.

    Returns nothing if this run succeeded and no process of an earlier release is connected to the
    database. In that case only days with unread or quarantined messages are left to pack, and
    different checks find these messages.
    """
    is_complete = values["annals_maintain_exit_code"].get(()) == 0
    earlier_sessions = values["annals_store_earlier_sessions"].get((), 0)
    return (
        ()
        if is_complete and not earlier_sessions
        else Threshold("annals_store_days_to_pack", ">", 0)(values)
    )


def count_by_reason(values: MetricValues) -> dict[str, int]:
    """Count the unsettled messages in quarantine by reason, the most frequent reason first."""
    counts = Counter[str]()
    for (_status, reason), count in values["annals_store_quarantine"].items():
        counts[str(REASONS.get(reason, reason))] += int(count)
    return {reason: count for reason, count in counts.most_common() if count}


COMPLETENESS, DAYS, QUARANTINE = "admin:completeness", "admin:days", "admin:quarantine"
MAINTAIN: Final = _("Run annals partitions maintain; it says what is in the way.")
# All checks, the worst problem first.
CHECKS: Final = (
    Alert(
        alert="AnnalsDatabaseDown",
        page=True,
        find_affected=Threshold("annals_store_up", "==", 0),
        problem=_("The database does not answer. Nothing is lost: the consumer waits."),
        remedy=_("Check whether PostgreSQL is running."),
        url="",
    ),
    Alert(
        alert="AnnalsLossNear",
        page=True,
        find_affected=_find_near_losses,
        problem=_("Messages will be lost soon: the brokers delete what is not read."),
        remedy=_("Let a consumer read, or have the brokers keep the topic longer."),
        url=COMPLETENESS,
    ),
    Alert(
        alert="AnnalsCatchUpTooSlow",
        page=True,
        find_affected=_find_slow_catch_up,
        problem=_("Reading is too slow: messages will be deleted before they are read."),
        remedy=_("Start more consumers, or have the brokers keep the topic longer."),
        url=COMPLETENESS,
    ),
    Alert(
        alert="AnnalsDoesNotAddUp",
        page=True,
        find_affected=Threshold("annals_store_faults", ">", 0),
        problem=_("The ledger does not add up, or messages were lost."),
        remedy=_("The page Completeness names the topic partition; keep the logs."),
        url=COMPLETENESS,
    ),
    Alert(
        alert="AnnalsHalted",
        page=True,
        find_affected=Threshold("annals_store_halted", "==", 1),
        problem=_("Reading has stopped at too many bad messages. Newer changes are missing."),
        remedy=_("Find what the service sends wrongly; then annals quarantine resume TOPIC."),
        url=QUARANTINE,
    ),
    Alert(
        alert="AnnalsConsumerSilent",
        page=True,
        find_affected=_make_silence_check(False, FIVE_MINUTES),
        problem=_("No consumer reports: newer changes are missing."),
        remedy=_("Check whether the consumer is running, and start it again."),
        url=COMPLETENESS,
        find_affected_early=_make_silence_check(False, SILENT),
    ),
    Alert(
        alert="AnnalsBrokersSilent",
        page=True,
        find_affected=_make_silence_check(True, FIVE_MINUTES),
        problem=_("The brokers do not answer: what was sent since is not known."),
        remedy=_("Check whether the consumer can reach Kafka."),
        url=COMPLETENESS,
        find_affected_early=_make_silence_check(True, SILENT),
    ),
    Alert(
        alert="AnnalsNothingRead",
        page=True,
        find_affected=_find_stuck_partitions,
        problem=_("There are unread messages, and for 15 minutes none was read."),
        remedy=_("Restart the consumer; its log says what it waits for."),
        url=COMPLETENESS,
    ),
    Alert(
        alert="AnnalsDaysRunOut",
        page=True,
        find_affected=Threshold("annals_store_days_ahead", "<", 3),
        problem=_("Days ahead run out: soon nothing can be stored."),
        remedy=_("Run annals partitions maintain, and find out why cron did not."),
        url=DAYS,
    ),
    Alert(
        alert="AnnalsWalNotArchived",
        page=True,
        find_affected=Threshold("annals_store_wal_archive_failing", "==", 1),
        problem=_("PostgreSQL cannot archive its WAL: backups end earlier, and the disk fills."),
        remedy=_("Repair the target of archive_command."),
        url="",
    ),
    Alert(
        alert="AnnalsPreparedLeft",
        page=True,
        find_affected=Threshold("annals_store_prepared_transactions_left", ">", 0),
        problem=_("A failed node left prepared transactions, whose locks stay."),
        remedy=_("Start the node, then run recover_prepared_transactions() as in the runbook."),
        url="",
    ),
    Alert(
        alert="AnnalsSealsDiffer",
        page=True,
        find_affected=Threshold("annals_verify_faults", ">", 0),
        problem=_("Sealed days were changed."),
        remedy=_("Keep everything, and find out who wrote; the runbook says how."),
        url=DAYS,
    ),
    Alert(
        alert="AnnalsArchiveDamaged",
        page=True,
        find_affected=Threshold("annals_archive_days_faulty", ">", 0),
        problem=_("Archived files are missing or changed."),
        remedy=_("Bring them back from a backup."),
        url=DAYS,
    ),
    Alert(
        alert="AnnalsQuarantine",
        page=False,
        find_affected=count_by_reason,
        problem=_("Messages are in quarantine: their changes are not in the history."),
        remedy=_("Look at the reasons; retry or discard them."),
        url=QUARANTINE,
    ),
    Alert(
        alert="AnnalsTopicNeverRead",
        page=False,
        find_affected=Threshold("annals_store_topics_never_read", ">", 0),
        problem=_("Topics were never read: nothing is known of their messages."),
        remedy=_(
            "Let a consumer read them, create live topics that do not exist, or declare them "
            "finished. A migration topic may be absent."
        ),
        url=COMPLETENESS,
    ),
    Alert(
        alert="AnnalsDaysMissing",
        page=False,
        find_affected=Threshold("annals_store_days_missing", ">", 0),
        problem=_("Days have no partition: nothing can be stored in them."),
        remedy=MAINTAIN,
        url=DAYS,
    ),
    Alert(
        alert="AnnalsDaysNotDropped",
        page=False,
        find_affected=Threshold("annals_store_days_overdue", ">", 0),
        problem=_("Days are kept longer than retention says."),
        remedy=MAINTAIN,
        url=DAYS,
    ),
    Alert(
        alert="AnnalsDaysNotPacked",
        page=False,
        find_affected=_find_tables_to_pack,
        problem=_("Finished days are not packed, and take ten times the disk."),
        remedy=MAINTAIN,
        url=DAYS,
    ),
    Alert(
        alert="AnnalsDaysHeld",
        page=False,
        find_affected=Threshold("annals_maintain_held", ">", 0),
        problem=_("Old days are held: messages may still come for them."),
        remedy=_("The calendar shows for which messages; settle them."),
        url=DAYS,
    ),
    Alert(
        alert="AnnalsManyOpened",
        page=False,
        find_affected=lambda values: [
            labels[0]
            for labels, count in values["annals_journal_most_opened"].items()
            if labels == ("person",) and count > 200
        ],
        problem=_("Somebody has opened more than 200 applications within an hour."),
        remedy=_("Tell the privacy officer, who reads the access journal."),
        url="",
    ),
)


DISK_FULL: Final = Alert(
    alert="AnnalsDiskFills",
    page=False,
    find_affected=lambda _: (),
    problem=_("The disk fills."),
    remedy=_("Keep fewer days, archive them, or get a larger disk."),
    url=DAYS,
)
RUN_JOB: Final = _("Run it, and find out why cron did not.")
JOB_LATE: Final = Alert(
    alert="",
    page=False,
    find_affected=lambda _: (),
    problem=_("A cron job did not run in time."),
    remedy=RUN_JOB,
    url="",
)
JOB_FAILED: Final = replace(JOB_LATE, problem=_("A cron job failed."))


def collect_values(families: Iterable[Metric]) -> MetricValues:
    """Return the values of all samples, by the name of the metric and then by labels.

    If a metric has several samples with the same labels, the last one counts.
    """
    values: MetricValues = defaultdict(dict)
    for family in families:
        for sample in family.samples:
            values[sample.name][tuple(sample.labels.values())] = sample.value
    return values


def _run_check(check: Alert, values: MetricValues) -> Alert:
    if affected := [*check.find_affected(values)]:
        return replace(check, affected=affected)
    affected = [*check.find_affected_early(values)]
    return replace(check, page=False, begun=True, affected=affected)


def find_problems(
    values: MetricValues, jobs: Iterable[CronJob], full: date | None = None
) -> list[Alert]:
    """Return an alert for each problem that exists now, the worst problem first.

    Args:
        values: The samples of the metrics.
        jobs: The cron jobs.
        full: The day on which the disk will be full. None: never, or not known.
    """
    problems = [_run_check(check, values) for check in CHECKS]
    if full:
        soon = full <= clock.now().date() + DISK_FULL_SOON
        problems.append(replace(DISK_FULL, page=soon, affected=[str(full)]))
    for job in jobs:
        if job.late or job.failed:
            kind = JOB_LATE if job.late else JOB_FAILED
            problems.append(replace(kind, alert=job.runbook, affected=[job.command]))
    return sorted((check for check in problems if check.affected), key=lambda check: not check.page)
