"""Whether all is well: the alerts of docker/prometheus/rules.yaml that need no past and no metrics
of other processes, on the same metrics. tests/db/test_operations.py compares both lists."""

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
from annals.operations.days import table_name
from annals.operations.jobs import Job
from history.base import clock
from history.base.moments import when
from history.base.silence import SILENT, Silence, silence
from history.reasons import REASONS
from ingest.completeness.losses import NEAR_SECONDS

MOST_PLACES: Final = 3
# As AnnalsDiskFills, which asks the host of PostgreSQL, has it.
FULL_SOON: Final = timedelta(days=3)
FIVE_MINUTES: Final = timedelta(minutes=5)
Labels = tuple[str, ...]
Values = dict[str, dict[Labels, float]]


@dataclass(frozen=True, slots=True)
class Check:
    """found: the places where it is not well, given the samples. page: act now, also at night.
    what: it is not well; do: what helps. url: the name of a page. where: the places that were
    found. early: places before it asks for that: it has just begun."""

    alert: str
    page: bool
    found: Callable[[Values], Iterable[str]]
    what: Promise
    do: Promise
    url: str
    early: Callable[[Values], Iterable[str]] = lambda _: ()
    where: Sequence[str] = ()
    begun: bool = False

    @property
    def more(self) -> int:
        """How many places the page does not name."""
        return max(0, len(self.where) - MOST_PLACES)

    @property
    def runbook(self) -> str:
        """The address of the section; empty if no address is set."""
        base = settings.ANNALS.runbook_url
        return f"{base}#{self.alert.lower()}" if base else ""


_SIGNS: Final[Mapping[str, Callable[[float, float], bool]]] = {"==": eq, ">": gt, "<": lt}


@dataclass(frozen=True, slots=True)
class Beyond:
    """The places where a metric is beyond a limit, as a rule has it: `name > 0`."""

    name: str
    sign: str
    limit: float

    def __call__(self, values: Values) -> list[str]:
        wrong = _SIGNS[self.sign]
        found = values[self.name].items()
        return sorted(_place(at) for at, value in found if wrong(value, self.limit))


def _near(values: Values) -> Iterable[str]:
    kept = values["annals_kept_seconds"]
    for at, seconds in values["annals_loss_seconds"].items():
        if seconds < min(NEAR_SECONDS, 0.5 * kept[at]):
            yield _place(at)


def _too_slow(values: Values) -> Iterable[str]:
    loss = values["annals_loss_seconds"]
    for at, seconds in values["annals_catch_up_seconds"].items():
        if seconds > loss[at]:
            yield _place(at)


def _place(labels: Labels) -> str:
    """The labels of a sample as people write the place."""
    if len(labels) == 2 and labels[1].isdigit():
        return f"{labels[0]}[{labels[1]}]"
    return " ".join(table_name(each) if each in TABLE else each for each in labels)


def _silences(values: Values) -> dict[Labels, Silence]:
    seen, known = (
        {at: datetime.fromtimestamp(value, UTC) for at, value in values[name].items()}
        for name in (
            "annals_store_seen_timestamp_seconds",
            "annals_store_end_known_timestamp_seconds",
        )
    )
    now = clock.now()
    found = {at: silence(seen.get(at, now), known.get(at), now) for at in {*seen, *known}}
    return {at: each for at, each in found.items() if each}


def _silent(brokers: bool, longer: timedelta) -> Callable[[Values], list[str]]:
    """The places; where these are all of several, since when."""

    def found(values: Values) -> list[str]:
        since = {
            at: each.since
            for at, each in _silences(values).items()
            if each.brokers is brokers and each.since < clock.now() - longer
        }
        if len(since) < max(2, len(values["annals_store_seen_timestamp_seconds"])):
            return sorted(map(_place, since))
        at = when(max(since.values()))
        return [format_html(gettext("all partitions, since {at}"), at=at)]

    return found


def _stuck(values: Values) -> Iterable[str]:
    """Where somebody answers and nothing is read, and the oldest unread message is as old: without
    that, one that came just now after a quiet time would count."""
    quarter_ago = clock.now().timestamp() - 900
    not_read = Beyond("annals_store_read_timestamp_seconds", "<", quarter_ago)(values)
    lag, kept = values["annals_store_lag"], values["annals_kept_seconds"]
    behind = {
        _place(at)
        for at, seconds in values["annals_loss_seconds"].items()
        if lag.get(at) and not values["annals_store_halted"].get(at) and kept[at] - seconds > 900
    }
    return sorted(behind & {*not_read} - {*map(_place, _silences(values))})


def _unpacked(values: Values) -> Iterable[str]:
    """Rows that came after a run that was done wait for the next one. What that run had to leave
    is found by another check: unread messages and the quarantine. A process of an earlier release
    is found by none."""
    done = values["annals_maintain_exit_code"].get(()) == 0
    waits = values["annals_store_earlier_sessions"].get((), 0)
    return () if done and not waits else Beyond("annals_store_days_to_pack", ">", 0)(values)


def by_reason(values: Values) -> dict[str, int]:
    """Of the quarantine: reasons in words and numbers of unsettled messages, the most first."""
    counts = Counter[str]()
    for (_status, reason), count in values["annals_store_quarantine"].items():
        counts[str(REASONS.get(reason, reason))] += int(count)
    return {reason: count for reason, count in counts.most_common() if count}


COMPLETENESS, DAYS, QUARANTINE = "admin:completeness", "admin:days", "admin:quarantine"
MAINTAIN: Final = _("Run annals partitions maintain; it says what is in the way.")
# The worst first.
CHECKS: Final = (
    Check("AnnalsDatabaseDown", True, Beyond("annals_store_up", "==", 0),
        _("The database does not answer. Nothing is lost: the consumer waits."),
        _("Check whether PostgreSQL is running."), ""),
    Check("AnnalsLossNear", True, _near,
        _("Messages will be lost soon: the brokers delete what is not read."),
        _("Let a consumer read, or have the brokers keep the topic longer."), COMPLETENESS),
    Check("AnnalsCatchUpTooSlow", True, _too_slow,
        _("Reading is too slow: messages will be deleted before they are read."),
        _("Start more consumers, or have the brokers keep the topic longer."), COMPLETENESS),
    Check("AnnalsDoesNotAddUp", True, Beyond("annals_store_faults", ">", 0),
        _("The ledger does not add up, or messages were lost."),
        _("The page Completeness names the place; keep the logs."), COMPLETENESS),
    Check("AnnalsHalted", True, Beyond("annals_store_halted", "==", 1),
        _("Reading has stopped at too many bad messages. Newer changes are missing."),
        _("Find what the service sends wrongly; then annals quarantine resume TOPIC."),
        QUARANTINE),
    Check("AnnalsConsumerSilent", True, _silent(False, FIVE_MINUTES),
        _("No consumer reports: newer changes are missing."),
        _("Check whether the consumer is running, and start it again."), COMPLETENESS,
        _silent(False, SILENT)),
    Check("AnnalsBrokersSilent", True, _silent(True, FIVE_MINUTES),
        _("The brokers do not answer: what was sent since is not known."),
        _("Check whether the consumer can reach Kafka."), COMPLETENESS,
        _silent(True, SILENT)),
    Check("AnnalsNothingRead", True, _stuck,
        _("There are unread messages, and for 15 minutes none was read."),
        _("Restart the consumer; its log says what it waits for."), COMPLETENESS),
    Check("AnnalsDaysRunOut", True, Beyond("annals_store_days_ahead", "<", 3),
        _("Days ahead run out: soon nothing can be stored."),
        _("Run annals partitions maintain, and find out why cron did not."), DAYS),
    Check("AnnalsWalNotArchived", True, Beyond("annals_store_wal_archive_failing", "==", 1),
        _("PostgreSQL cannot archive its WAL: backups end earlier, and the disk fills."),
        _("Repair the target of archive_command."), ""),
    Check("AnnalsPreparedLeft", True, Beyond("annals_store_prepared_transactions_left", ">", 0),
        _("Transactions of a node that ended are left, and what they lock stays locked."),
        _("Start the node, then run recover_prepared_transactions() as in the runbook."), ""),
    Check("AnnalsSealsDiffer", True, Beyond("annals_verify_faults", ">", 0),
        _("Sealed days were changed."),
        _("Keep everything, and find out who wrote; the runbook says how."), DAYS),
    Check("AnnalsArchiveDamaged", True, Beyond("annals_archive_days_faulty", ">", 0),
        _("Archived files are missing or changed."), _("Bring them back from a backup."), DAYS),
    Check("AnnalsQuarantine", False, by_reason,
        _("Messages are in quarantine: their changes are not in the history."),
        _("Look at the reasons; retry or discard them."), QUARANTINE),
    Check("AnnalsTopicNeverRead", False, Beyond("annals_store_topics_never_read", ">", 0),
        _("Topics were never read: nothing is known of their messages."),
        _("Let a consumer read them, create live topics that do not exist, or declare them "
          "finished. A migration topic may be absent."), COMPLETENESS),
    Check("AnnalsDaysMissing", False, Beyond("annals_store_days_missing", ">", 0),
        _("Days have no partition: nothing can be stored in them."),
        MAINTAIN, DAYS),
    Check("AnnalsDaysNotDropped", False, Beyond("annals_store_days_overdue", ">", 0),
        _("Days are kept longer than retention says."),
        MAINTAIN, DAYS),
    Check("AnnalsDaysNotPacked", False, _unpacked,
        _("Finished days are not packed, and take ten times the disk."),
        MAINTAIN, DAYS),
    Check("AnnalsDaysHeld", False, Beyond("annals_maintain_held", ">", 0),
        _("Old days are held: messages may still come for them."),
        _("The calendar says for what; settle these messages."), DAYS),
    Check("AnnalsManyOpened", False,
        lambda values: [at[0] for at, n in values["annals_journal_most_opened"].items()
            if at == ("person",) and n > 200],
        _("Somebody has opened more than 200 applications within an hour."),
        _("Tell the privacy officer, who reads the access journal."), ""),
)  # fmt: skip


FULL: Final = Check("AnnalsDiskFills", False, lambda _: (), _("The disk fills."),
    _("Keep fewer days, archive them, or get a larger disk."), DAYS)  # fmt: skip
DO: Final = _("Run it, and find out why cron did not.")
LATE: Final = Check("", False, lambda _: (), _("A cron job did not run in time."), DO, "")
FAILED: Final = replace(LATE, what=_("A cron job failed."))


def values_of(families: Iterable[Metric]) -> Values:
    """The samples by metric and labels. Of two samples with the same the last counts."""
    values: Values = defaultdict(dict)
    for family in families:
        for sample in family.samples:
            values[sample.name][tuple(sample.labels.values())] = sample.value
    return values


def _looked(check: Check, values: Values) -> Check:
    if where := [*check.found(values)]:
        return replace(check, where=where)
    return replace(check, page=False, begun=True, where=[*check.early(values)])


def findings(values: Values, jobs: Iterable[Job], full: date | None = None) -> list[Check]:
    """What is not well, the worst first. jobs: of annals.operations.jobs. full: the day on which
    the disk is."""
    found = [_looked(each, values) for each in CHECKS]
    if full:
        soon = full <= clock.now().date() + FULL_SOON
        found.append(replace(FULL, page=soon, where=[str(full)]))
    for job in jobs:
        if job.late or job.failed:
            kind = LATE if job.late else FAILED
            found.append(replace(kind, alert=job.runbook, where=[job.command]))
    return sorted((each for each in found if each.where), key=lambda each: not each.page)
