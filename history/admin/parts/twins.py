"""Versions with one number: a producer gave it twice, or the old service has another time."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from history import timeline
from history.admin.parts import links
from history.admin.parts.cards import utc
from history.entities import Entity


@dataclass(frozen=True, slots=True)
class Twin:
    """Another version with the number of the one that is shown. url: its snapshot. compare_url:
    the older and the younger one compared. old: it is the old service's. from_old: the one
    that is shown is."""

    version: int
    updated_at: datetime
    utc: str
    url: str
    compare_url: str
    old: bool
    from_old: bool


def other_versions(entity: Entity, id: str, number: int, shown: Collection[datetime]) -> list[Twin]:
    """The versions with a number that are not shown, the older ones first."""
    twins = timeline.twins(entity, id, number)
    from_old = any(twin.old for twin in twins if twin.updated_at in shown)
    return [
        Twin(
            number,
            twin.updated_at,
            utc(twin.updated_at),
            links.snapshot(entity, id, number, twin.updated_at),
            _comparison(entity, id, number, sorted([twin.updated_at, *shown])),
            twin.old,
            from_old,
        )
        for twin in twins
        if twin.updated_at not in shown
    ]


def _comparison(entity: Entity, id: str, number: int, times: list[datetime]) -> str:
    return links.comparison(entity, id, (number, times[0]), (number, times[-1]))
