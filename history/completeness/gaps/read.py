"""Reads the version gaps: sums for metrics, pages for people."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django.db import connection

from history.common.answer_types import Answer, Count, Moment
from history.kinds.entities import BY_NAME
from history.models import GapRun, VersionGap
from history.store import quarantine_queries
from history.store.quarantined_messages import QuarantinedMessage, VersionRange

# The metrics name at most this many services. Client ids come from messages, so there may be many.
MAX_CLIENTS = 20
OTHER_CLIENTS = "other"

_SUMS = """
WITH sums AS (
    SELECT entity, client_id, count(*) AS gaps, sum(last::bigint - first + 1) AS versions
    FROM version_gap WHERE closed_at IS NULL GROUP BY entity, client_id
), named AS (
    SELECT client_id FROM sums GROUP BY client_id ORDER BY sum(versions) DESC, client_id LIMIT %s
)
SELECT entity, coalesce(named.client_id, %s), sum(gaps)::bigint, sum(versions)::bigint
FROM sums LEFT JOIN named USING (client_id) GROUP BY 1, 2 ORDER BY 1, 4 DESC, 2
"""
# Counts gaps and missing versions by outcome. Open gaps have the outcome "".
_TOTALS = """
SELECT outcome, count(*), sum(last::bigint - first + 1)::bigint FROM version_gap GROUP BY outcome
"""


class GapSum(NamedTuple):
    """How many version gaps of one kind and service are open, and how many versions are missing."""

    entity: str
    client_id: str
    gaps: int  # how many gaps; a gap has one or more versions with consecutive numbers
    versions: int  # how many versions are missing in all these gaps


class GapFigures(Answer, kw_only=True):
    """The totals of version gaps as `GET completeness` answers them. See GapTotals."""

    looked_at: Moment | None
    gaps: Count
    missing: Count
    arrived: Count


@dataclass(frozen=True, slots=True)
class GapTotals:
    """The totals of the version gaps of all kinds and services, as `annals gaps` found them."""

    looked_at: datetime | None  # when the latest run began; None before the first run
    gaps: int  # how many gaps are open
    missing: int  # how many versions are missing in the open gaps
    arrived: int  # how many missing versions have arrived since

    def to_answer(self) -> GapFigures:
        looked_at = self.looked_at
        return GapFigures(
            looked_at=None if looked_at is None else looked_at.isoformat(timespec="microseconds"),
            gaps=self.gaps,
            missing=self.missing,
            arrived=self.arrived,
        )


@dataclass(frozen=True, slots=True)
class GapSelection:
    """A filter of version gaps. None stands for any kind or service."""

    entity: str | None = None
    client_id: str | None = None
    closed: bool = False  # whether to select closed gaps instead of open ones

    @property
    def narrowed(self) -> bool:
        """Whether the filter leaves out gaps of some kinds or services."""
        return self.entity is not None or self.client_id is not None


@dataclass(frozen=True, slots=True)
class ListedGap:
    """A version gap, and the messages in quarantine that contain versions of the gap."""

    gap: VersionGap
    # the messages by version number, ascending
    quarantined: Mapping[int, QuarantinedMessage]


def fetch_sums() -> list[GapSum]:
    """Count the open version gaps, and the missing versions in them, for each kind and service.

    The MAX_CLIENTS services with the most missing versions are counted one by one, and all other
    services together as OTHER_CLIENTS.
    """
    with connection.cursor() as cursor:
        cursor.execute(_SUMS, [MAX_CLIENTS, OTHER_CLIENTS])
        return [GapSum(*row) for row in cursor.fetchall()]


def fetch_totals() -> GapTotals:
    """Return the totals of the version gaps of all kinds and services. Runs two queries."""
    run = GapRun.objects.first()
    with connection.cursor() as cursor:
        cursor.execute(_TOTALS)
        totals_by_outcome = {
            outcome: (gaps, versions) for outcome, gaps, versions in cursor.fetchall()
        }
    gaps, missing = totals_by_outcome.get("", (0, 0))
    return GapTotals(
        run.started_at if run else None,
        gaps,
        missing,
        # An earlier release wrote "recovered" for versions that Annals had asked a service to send.
        sum(totals_by_outcome.get(outcome, (0, 0))[1] for outcome in ("arrived", "recovered")),
    )


def fetch_page(selection: GapSelection, size: int, before: int | None = None) -> list[ListedGap]:
    """Return up to `size` version gaps, the newest first.

    Args:
        before: Return only gaps with a lower id than this. None: begin with the newest gap.
    """
    rows = VersionGap.objects.filter(closed_at__isnull=not selection.closed).order_by("-id")
    if selection.entity is not None:
        rows = rows.filter(entity=selection.entity)
    if selection.client_id is not None:
        rows = rows.filter(client_id=selection.client_id)
    if before is not None:
        rows = rows.filter(id__lt=before)
    return _add_quarantined(list(rows[:size]))


def _add_quarantined(gaps: Sequence[VersionGap]) -> list[ListedGap]:
    """Add to each gap its messages in quarantine. Runs one query for each kind."""
    messages = {}
    for name in {gap.entity for gap in gaps} & BY_NAME.keys():
        ranges = [
            VersionRange(gap.document, gap.first, gap.last) for gap in gaps if gap.entity == name
        ]
        messages[name] = quarantine_queries.find_by_versions(BY_NAME[name], ranges)
    return [
        ListedGap(
            gap,
            {
                number: message
                for number, message in messages.get(gap.entity, {}).get(gap.document, {}).items()
                if gap.first <= number <= gap.last
            },
        )
        for gap in gaps
    ]
