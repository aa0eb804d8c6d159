"""Lists the cron jobs: when each last ran, how it ended, and whether its next run is late."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.db.models import Count, Min, Q
from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from history.common import clock
from history.completeness.gaps import run as gap_runs
from history.models import ArchivedDay
from history.retention import runs
from history.retention.seals.verification import load_latest_checks
from ingest.models import JobRun
from ingest.quarantine.screen import describe_outcome

# The same times as in the alerts of docker/prometheus/rules.yaml. There is no alert for retries.
LATE_AFTER: Final = {
    "AnnalsMaintainFails": timedelta(hours=26),
    "AnnalsQuarantine": timedelta(hours=3),
    "AnnalsGapsUnknown": timedelta(hours=4),
    "AnnalsVerifyMissing": timedelta(days=8),
    "AnnalsArchiveUnchecked": timedelta(days=35),
}


@dataclass(frozen=True, slots=True)
class CronJob:
    """One cron job and its latest run."""

    command: str  # as in the crontab
    purpose: Promise  # a clause for people
    runbook: str  # the name of the alert, and of the section in the runbook
    ran: datetime | None  # when the latest complete run began
    outcome: str  # how that run ended, in words
    failed: bool = False  # whether the run found something wrong

    @property
    def late(self) -> bool:
        """Whether the next run is late, or the job has never run."""
        return self.ran is None or clock.now() - self.ran > LATE_AFTER[self.runbook]


def list_jobs() -> Iterator[CronJob]:
    """List the cron jobs that this installation needs."""
    run, done_text = runs.load_latest_run(), gettext("done")
    code = run.exit_code if run else 0
    words = {0: done_text, 1: gettext("not everything yet; the next run tries again")}
    yield CronJob(
        command="annals partitions maintain",
        purpose=_("creates, archives, drops and seals days"),
        runbook="AnnalsMaintainFails",
        ran=run.started_at if run else None,
        outcome=words.get(code, gettext("failed")),
        failed=code == 2,
    )
    retry = JobRun.objects.filter(name=JobRun.RETRY).first()
    yield CronJob(
        command=f"annals {JobRun.RETRY}",
        purpose=_("retries quarantined messages; handles requests from screens"),
        runbook="AnnalsQuarantine",
        ran=retry.started_at if retry else None,
        outcome=(retry and describe_outcome(retry.outcome)) or gettext("nothing was due"),
    )
    gaps = gap_runs.get_latest_run()
    yield CronJob(
        command="annals gaps",
        purpose=_("looks for versions that never arrived"),
        runbook="AnnalsGapsUnknown",
        ran=gaps.started_at if gaps else None,
        outcome=done_text,
    )
    if verified := list(load_latest_checks()):
        faults = sum(count or 0 for _table, _began, count in verified)
        is_unverified = all(count is None for _table, _began, count in verified)
        verify_text = gettext("not yet") if is_unverified else gettext("days that differ: {n}")
        yield CronJob(
            command="annals partitions verify",
            purpose=_("compares sealed days with their seals"),
            runbook="AnnalsVerifyMissing",
            ran=min(began for _table, began, _count in verified),
            outcome=verify_text.format(n=faults),
            failed=faults > 0,
        )
    archived = ArchivedDay.objects.aggregate(
        days=Count("id"), faulty=Count("id", filter=~Q(fault="")), oldest=Min("checked_at")
    )
    if settings.ANNALS.archive_url and archived["days"]:
        yield CronJob(
            command="annals partitions verify --archive",
            purpose=_("reads the archived files; time of the oldest check"),
            runbook="AnnalsArchiveUnchecked",
            ran=archived["oldest"],
            outcome=gettext("damaged days: {n}").format(n=archived["faulty"]),
            failed=archived["faulty"] > 0,
        )
