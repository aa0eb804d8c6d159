"""The gaps that are known: sums for metrics, pages for people."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.db import connection

from history import quarantined
from history.entities import BY_NAME
from history.gap_models import GapRun, VersionGap
from history.held_messages import Quarantined

# Client ids come from messages, so there may be any number of them.
MOST_CLIENTS = 20
OTHER = "other"

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
# Of each outcome, "" for the gaps that are open.
_TOTALS = """
SELECT outcome, count(*), sum(last::bigint - first + 1)::bigint FROM version_gap GROUP BY outcome
"""


class Sum(NamedTuple):
    """Open gaps of one kind by one service, and how many versions they are."""

    entity: str
    client_id: str
    gaps: int
    versions: int


@dataclass(frozen=True, slots=True)
class Totals:
    """What the latest run of `gaps` knows. looked_at: when it began, None before the first.
    missing: open gaps, and how many versions they are; the others: versions of closed gaps."""

    looked_at: datetime | None
    gaps: int
    missing: int
    arrived: int

    def as_json(self) -> dict[str, Any]:
        """As `GET completeness` has it."""
        return {
            "lookedAt": self.looked_at and self.looked_at.isoformat(timespec="microseconds"),
            "gaps": self.gaps,
            "missing": self.missing,
            "arrived": self.arrived,
        }


@dataclass(frozen=True, slots=True)
class Selection:
    """Which gaps; None means any. closed: those that were closed instead of the open ones."""

    entity: str | None = None
    client_id: str | None = None
    closed: bool = False

    @property
    def narrowed(self) -> bool:
        """Whether gaps of other kinds or services are left out."""
        return self.entity is not None or self.client_id is not None


@dataclass(frozen=True, slots=True)
class ListedGap:
    """A gap, and those of its versions that are in quarantine, ascending."""

    gap: VersionGap
    came: Mapping[int, Quarantined]


def sums() -> list[Sum]:
    """By kind and service."""
    with connection.cursor() as cursor:
        cursor.execute(_SUMS, [MOST_CLIENTS, OTHER])
        return [Sum(*row) for row in cursor.fetchall()]


def totals() -> Totals:
    """The sums of all kinds and services. Two queries."""
    run = GapRun.objects.first()
    with connection.cursor() as cursor:
        cursor.execute(_TOTALS)
        found = {outcome: (gaps, versions) for outcome, gaps, versions in cursor.fetchall()}
    gaps, missing = found.get("", (0, 0))
    return Totals(
        run.started_at if run else None,
        gaps,
        missing,
        # An earlier release told apart those that Annals had asked for.
        sum(found.get(outcome, (0, 0))[1] for outcome in ("arrived", "recovered")),
    )


def page(selection: Selection, size: int, before: int | None = None) -> list[ListedGap]:
    """Up to `size` gaps, the latest found first; those with a lower id than `before`."""
    rows = VersionGap.objects.filter(closed_at__isnull=not selection.closed).order_by("-id")
    if selection.entity is not None:
        rows = rows.filter(entity=selection.entity)
    if selection.client_id is not None:
        rows = rows.filter(client_id=selection.client_id)
    if before is not None:
        rows = rows.filter(id__lt=before)
    return _with_quarantine(list(rows[:size]))


def _with_quarantine(gaps: Sequence[VersionGap]) -> list[ListedGap]:
    """A query for each kind."""
    came = {}
    for name in {gap.entity for gap in gaps} & BY_NAME.keys():
        wanted = [(gap.document, gap.first, gap.last) for gap in gaps if gap.entity == name]
        came[name] = quarantined.of_versions(BY_NAME[name], wanted)
    return [
        ListedGap(
            gap,
            {
                number: each
                for number, each in came.get(gap.entity, {}).get(gap.document, {}).items()
                if gap.first <= number <= gap.last
            },
        )
        for gap in gaps
    ]
