"""Where versions came from that did not arrive from Kafka."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from history import prepared
from history.entities import Entity
from history.timeline.cursor import cursor

_OF_ENTITY = """
    SELECT version, updated_at, source, recovered_at FROM recovered_version
    WHERE "table" = %s AND row_id = %s
"""


class Recovered(NamedTuple):
    """Whom Annals asked for a version that did not arrive, and when it was stored."""

    source: str
    at: datetime


def of(entity: Entity, id: str) -> dict[tuple[int, datetime], Recovered]:
    """Those of an entity's versions, archived ones too, that Annals asked for: by number and
    moment."""
    with cursor() as opened:
        found = prepared.run(opened, _OF_ENTITY, [entity.table, id])
    return {(version, made): Recovered(source, at) for version, made, source, at in found}
