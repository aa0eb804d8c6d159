"""Versions with one number: a producer gave it twice."""

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
    the older and the younger one compared."""

    version: int
    updated_at: datetime
    utc: str
    url: str
    compare_url: str


def other_versions(entity: Entity, id: str, number: int, shown: Collection[datetime]) -> list[Twin]:
    """The versions with a number that are not shown, the older ones first."""
    times = timeline.twins(entity, id, number)
    return [
        Twin(
            number,
            made,
            utc(made),
            links.snapshot(entity, id, number, made),
            _comparison(entity, id, number, sorted([made, *shown])),
        )
        for made in times
        if made not in shown
    ]


def _comparison(entity: Entity, id: str, number: int, times: list[datetime]) -> str:
    return links.comparison(entity, id, (number, times[0]), (number, times[-1]))
