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
from ingest.quarantine.screen import in_words

# As the alerts of docker/prometheus/rules.yaml have it; a retry has none of its own.
LATE: Final = {
    "AnnalsMaintainFails": timedelta(hours=26),
    "AnnalsQuarantine": timedelta(hours=3),
    "AnnalsGapsUnknown": timedelta(hours=4),
    "AnnalsVerifyMissing": timedelta(days=8),
    "AnnalsArchiveUnchecked": timedelta(days=35),
}


@dataclass(frozen=True, slots=True)
class Job:
    """command: as cron has it. ran: when the latest complete run began, None if there was none.
    outcome: for people. failed: it found something wrong. runbook: the section for that."""

    command: str
    what: Promise
    runbook: str
    ran: datetime | None
    outcome: str
    failed: bool = False

    @property
    def late(self) -> bool:
        """Whether a run is missing."""
        return self.ran is None or clock.now() - self.ran > LATE[self.runbook]


def jobs() -> Iterator[Job]:
    """Those that this installation needs."""
    run, done = state.latest(), gettext("done")
    code = run.exit_code if run else 0
    words = {0: done, 1: gettext("not everything yet; the next run tries again")}
    yield Job(
        "annals partitions maintain", _("creates, archives, drops and seals days"),
        "AnnalsMaintainFails", run.started_at if run else None,
        words.get(code, gettext("failed")), code == 2,
    )  # fmt: skip
    retry = JobRun.objects.filter(name=JobRun.RETRY).first()
    yield Job(
        f"annals {JobRun.RETRY}", _("retries quarantined messages; does what was asked for"),
        "AnnalsQuarantine", retry.started_at if retry else None,
        (retry and in_words(retry.outcome)) or gettext("nothing was due"),
    )  # fmt: skip
    gaps = gap_runs.latest()
    yield Job(
        "annals gaps", _("looks for versions that never arrived"),
        "AnnalsGapsUnknown", gaps.started_at if gaps else None, done,
    )  # fmt: skip
    if verified := list(latest()):
        faults = sum(count or 0 for _table, _began, count in verified)
        never = all(count is None for _table, _began, count in verified)
        words_of = gettext("not yet") if never else gettext("days that differ: {n}")
        yield Job(
            "annals partitions verify", _("compares sealed days with their seals"),
            "AnnalsVerifyMissing", min(began for _table, began, _count in verified),
            words_of.format(n=faults), faults > 0,
        )  # fmt: skip
    found = ArchivedDay.objects.aggregate(
        days=Count("id"), faulty=Count("id", filter=~Q(fault="")), oldest=Min("checked_at")
    )
    if settings.ANNALS.archive_url and found["days"]:
        yield Job(
            "annals partitions verify --archive",
            _("reads the archived files; time of the oldest check"),
            "AnnalsArchiveUnchecked", found["oldest"],
            gettext("damaged days: {n}").format(n=found["faulty"]), found["faulty"] > 0,
        )  # fmt: skip
