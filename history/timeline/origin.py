"""The version that set a value, as blame and the history of a field show it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from history.people import Author
from history.record import ChangeType
from history.timeline import absence, neighbours
from history.timeline.neighbours import Pair, Place
from history.timeline.versions import parse


@dataclass(frozen=True, slots=True)
class Origin:
    """The version that set a value. exact: False if an older version, which the store does not
    have, may have set it."""

    version: int
    type: ChangeType
    updated_at: datetime
    client_id: str
    service: Author
    author: Author | None
    exact: bool


def origins(pairs: Collection[Pair]) -> Mapping[Place, Origin]:
    """The version of each pair as an origin, by its place. No query where all were read
    before.

    The same pair may be given for many values; it is looked at once.
    """
    each_once = {pair.place: pair for pair in pairs}
    authors = neighbours.authors(each_once.values())
    return {
        place: Origin(
            version=pair.row.version,
            type=ChangeType(pair.row.type),
            updated_at=pair.row.updated_at,
            client_id=pair.row.client_id,
            service=authors[pair.row.client_id],
            author=authors[pair.row.author] if pair.row.author is not None else None,
            exact=_exact(pair),
        )
        for place, pair in each_once.items()
    }


def _exact(pair: Pair) -> bool:
    """Whether no version is missing before it that may have set the value."""
    row, before = pair.row, pair.before
    if before is not None:
        return before.version == row.version - 1
    return absence.below(pair.entity, row, parse(row.data)) is None
