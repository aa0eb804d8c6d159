"""The gaps that are known: sums for metrics, pages for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.db import connection

from history import quarantined
from history.entities import BY_NAME
from history.gap_models import GapRun, GapSource, VersionGap
from history.quarantined import Quarantined

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
_SAID = """
SELECT g.id, a.source, a.asked_at, span.versions && a.gone, span.versions && a.refused, a.detail,
    CASE WHEN a.next_attempt_at > now() THEN a.next_attempt_at END
FROM version_gap g
CROSS JOIN LATERAL (SELECT int8range(g.first, g.last, '[]') AS versions) AS span
JOIN gap_answer a ON a.entity = g.entity AND a.document = g.document
WHERE g.id = ANY(%s) AND (span.versions && (a.gone + a.refused) OR a.next_attempt_at > now())
ORDER BY a.source
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
    missing: open gaps, and how many versions they are; the others: versions of gaps that closed
    while their days were kept."""

    looked_at: datetime | None
    gaps: int
    missing: int
    arrived: int
    recovered: int

    def as_json(self) -> dict[str, Any]:
        """As `GET completeness` has it."""
        return {
            "lookedAt": self.looked_at and self.looked_at.isoformat(timespec="microseconds"),
            "gaps": self.gaps,
            "missing": self.missing,
            "arrived": self.arrived,
            "recovered": self.recovered,
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


class Said(NamedTuple):
    """What a source said when it was asked for versions of a gap. gone: it does not have some of
    them; refused: what it gave could not be stored; detail: why, in English. later: it is not asked
    for the rest before."""

    source: str
    asked_at: datetime
    gone: bool
    refused: bool
    detail: str
    later: datetime | None


@dataclass(frozen=True, slots=True)
class Listed:
    """A gap, and those of its versions that are in quarantine, ascending. said: what was answered
    by those who were asked for its versions."""

    gap: VersionGap
    came: Mapping[int, Quarantined]
    said: Sequence[Said]


def sums() -> list[Sum]:
    """By kind and service; those of other services than the MOST_CLIENTS with the most missing
    versions together, as `other`."""
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
        found.get("arrived", (0, 0))[1],
        found.get("recovered", (0, 0))[1],
    )


def page(selection: Selection, size: int, before: int | None = None) -> list[Listed]:
    """Up to `size` gaps, the latest found first; those with a lower id than `before`."""
    rows = VersionGap.objects.filter(closed_at__isnull=not selection.closed).order_by("-id")
    if selection.entity is not None:
        rows = rows.filter(entity=selection.entity)
    if selection.client_id is not None:
        rows = rows.filter(client_id=selection.client_id)
    if before is not None:
        rows = rows.filter(id__lt=before)
    return _with_quarantine(list(rows[:size]))


def _with_quarantine(gaps: Sequence[VersionGap]) -> list[Listed]:
    """A query for each kind, and one for the answers."""
    said = _said([gap.id for gap in gaps if gap.closed_at is None])
    came = {}
    for name in {gap.entity for gap in gaps} & BY_NAME.keys():
        wanted = [(gap.document, gap.first, gap.last) for gap in gaps if gap.entity == name]
        came[name] = quarantined.of_versions(BY_NAME[name], wanted)
    return [
        Listed(
            gap,
            {
                number: each
                for number, each in came.get(gap.entity, {}).get(gap.document, {}).items()
                if gap.first <= number <= gap.last
            },
            said.get(gap.id, ()),
        )
        for gap in gaps
    ]


def _said(gaps: Sequence[int]) -> dict[int, list[Said]]:
    found: dict[int, list[Said]] = {}
    if gaps:
        with connection.cursor() as cursor:
            cursor.execute(_SAID, [list(gaps)])
            for id, *values in cursor.fetchall():
                found.setdefault(id, []).append(Said(*values))
    return found


def sources() -> list[GapSource]:
    """Whom `gaps heal` has asked ever, by name."""
    return list(GapSource.objects.order_by("name"))
