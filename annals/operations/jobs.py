"""When each cron job ran last, what came of it, and whether its next run is late."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.db.models import Count, Min, Q
from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from history.base import clock
from history.gaps import run as gap_runs
from history.models import ArchivedDay
from history.partitions import state
from history.seals.verification import latest
from ingest.models import JobRun

# As the alerts of docker/prometheus/rules.yaml have it; `retry` has none, and runs once an hour.
LATE: Final = {
    "AnnalsMaintainFails": timedelta(hours=26),
    "AnnalsGapsUnknown": timedelta(hours=4),
    "AnnalsVerifyMissing": timedelta(days=8),
    "AnnalsArchiveUnchecked": timedelta(days=35),
    "AnnalsQuarantine": timedelta(hours=3),
}


@dataclass(frozen=True, slots=True)
class Job:
    """command: as cron has it. ran: when the latest complete run began, None if there was none.
    outcome: for people. failed: it found something wrong. runbook: the section for that."""

    command: str
    what: Promise
    ran: datetime | None
    outcome: str
    failed: bool
    runbook: str

    @property
    def late(self) -> bool:
        """Whether a run is missing."""
        return self.ran is None or clock.now() - self.ran > LATE[self.runbook]


def jobs() -> Iterator[Job]:
    """Those that this installation needs."""
    yield _maintain()
    yield _retry()
    run = gap_runs.latest()
    yield Job(
        "annals gaps", _("looks for versions that never arrived"),
        run.started_at if run else None, gettext("done") if run else "", False, "AnnalsGapsUnknown",
    )  # fmt: skip
    if verified := list(latest()):
        since = min(found.since for found in verified)
        faults = sum(found.faults or 0 for found in verified)
        never = all(found.faults is None for found in verified)
        yield Job(
            "annals partitions verify", _("compares sealed days with their seals"), since,
            gettext("not yet") if never else gettext("days that differ: {n}").format(n=faults),
            faults > 0, "AnnalsVerifyMissing",
        )  # fmt: skip
    if settings.ANNALS.archive_url and (archived := _archive()):
        yield archived


def _maintain() -> Job:
    run = state.latest()
    words = {
        None: "",
        0: gettext("done"),
        1: gettext("not everything yet; the next run tries again"),
    }
    code = run.exit_code if run else None
    return Job(
        "annals partitions maintain", _("creates, archives, drops and seals days"),
        run.started_at if run else None, words.get(code, gettext("failed")), code == 2,
        "AnnalsMaintainFails",
    )  # fmt: skip


def _retry() -> Job:
    run = JobRun.objects.filter(name=JobRun.RETRY).first()
    outcome = (run.outcome or gettext("nothing was due")) if run else ""
    return Job(
        f"annals {JobRun.RETRY}", _("retries quarantined messages; does what was asked for"),
        run.started_at if run else None, outcome, False, "AnnalsQuarantine",
    )  # fmt: skip


def _archive() -> Job | None:
    found = ArchivedDay.objects.aggregate(
        days=Count("id"), faulty=Count("id", filter=~Q(fault="")), oldest=Min("checked_at")
    )
    if not found["days"]:
        return None
    return Job(
        "annals partitions verify --archive", _("reads the archived files; the oldest look"),
        found["oldest"], gettext("damaged days: {n}").format(n=found["faulty"]),
        found["faulty"] > 0, "AnnalsArchiveUnchecked",
    )  # fmt: skip
