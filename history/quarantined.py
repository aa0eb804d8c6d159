"""Which versions came and are in quarantine. The table is ingest's."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.db import connection

from history.entities import Entity
from history.requests import deadline

# Versions that one question finds at most: a document may have a million bad messages.
MOST = 1_000


class MessagePlace(NamedTuple):
    """Where a message is in Kafka."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A message that came and was not stored. version: as far as it says; entity and id may be
    empty. reason: a member of ingest's Reason; status: of its model. settled_at: when it was
    resolved or discarded. outcome: what a resolved message became, or why it was discarded."""

    entity: str
    id: str
    version: int | None
    reason: str
    detail: str
    status: str
    came_at: datetime
    settled_at: datetime | None
    outcome: str
    place: MessagePlace


_COLUMNS = """
    q.entity, q.entity_id, q.version, q.reason, q.detail, q.status, q.first_seen, q.settled_at,
    q.outcome, q.topic, q.partition, q."offset"
"""
# Of several messages with one number, the one that can still be retried, then the latest; what came
# too late explains a gap too. Ids first: to sort 500,000 whole rows takes 20 s.
_OF_VERSIONS = f"""
    SELECT {_COLUMNS} FROM (
        SELECT coalesce(
            max(q.id) FILTER (WHERE q.status NOT IN ('resolved', 'discarded')), max(q.id)
        ) AS id
        FROM unnest(%s::varchar[], %s::bigint[], %s::bigint[]) AS wanted(id, low, high)
        JOIN ingest_quarantine q ON q.entity = %s AND q.entity_id = wanted.id AND q.entity_id <> ''
            AND q.version >= wanted.low AND q.version <= wanted.high
        WHERE q.status <> 'resolved' OR q.outcome = 'expired'
        GROUP BY q.entity_id, q.version ORDER BY q.entity_id, q.version LIMIT {MOST}
    ) AS chosen JOIN ingest_quarantine q USING (id)
    ORDER BY q.entity_id, q.version
"""  # noqa: S608 - constants
_OF_DOCUMENT = f"""
    SELECT {_COLUMNS} FROM ingest_quarantine q
    WHERE q.entity = %s AND q.entity_id = %s AND q.entity_id <> '' AND q.status <> 'resolved'
    ORDER BY q.id DESC LIMIT {MOST}
"""  # noqa: S608 - constants
_AT = f"""
    SELECT {_COLUMNS} FROM ingest_quarantine q
    WHERE topic = %s AND topic_id = %s AND partition = %s AND "offset" = %s
"""  # noqa: S608 - constants
_RESOLVED = f"""
    SELECT {_COLUMNS} FROM ingest_quarantine q
    WHERE q.entity = %s AND q.entity_id = %s AND q.entity_id <> '' AND q.version = %s
        AND q.status = 'resolved' AND q.outcome IN ('stored', 'repeated')
    ORDER BY q.id LIMIT 1
"""  # noqa: S608 - constants

Wanted = tuple[str, int, int]  # id, lowest and highest version


def of_versions(
    entity: Entity, wanted: Iterable[Wanted]
) -> Mapping[str, Mapping[int, Quarantined]]:
    """Of these versions those in quarantine or discarded there, or came out of it too late to be
    stored, by id and number, ascending. One query, none without wanted; the first MOST."""
    columns = [list(column) for column in zip(*wanted, strict=True)]
    found: dict[str, dict[int, Quarantined]] = {}
    for each in _fetch(_OF_VERSIONS, [*columns, entity.name]) if columns else ():
        if each.version is not None:
            found.setdefault(each.id, {})[each.version] = each
    return found


def of_document(entity: Entity, id: str) -> list[Quarantined]:
    """Its messages that are in quarantine or discarded there, whatever they say of their version;
    the newest first, MOST at most."""
    return _fetch(_OF_DOCUMENT, [entity.name, id])


def resolved(entity: Entity, id: str, version: int) -> Quarantined | None:
    """The message that was stored out of quarantine as this version; None if there is none."""
    return next(iter(_fetch(_RESOLVED, [entity.name, id, version])), None)


def at(topic: str, topic_id: str, partition: int, offset: int) -> Quarantined | None:
    """The message with this offset, whatever its status; None if it never was in quarantine."""
    return next(iter(_fetch(_AT, [topic, topic_id, partition, offset])), None)


def _fetch(statement: str, values: list[Any]) -> list[Quarantined]:
    deadline.check()
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return [_quarantined(row) for row in cursor.fetchall()]


def _quarantined(row: tuple[Any, ...]) -> Quarantined:
    return Quarantined(*row[:-3], MessagePlace(*row[-3:]))  # type: ignore[call-arg] # nine and three
