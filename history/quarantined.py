"""Which versions came and are in quarantine. The table is ingest's.

No answer here is of a reader: history.timeline.gate asks about documents, and leaves out what its
reader may not know. What is told to operators alone asks here itself (docs/access.md).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple

from django.db import connection

from history.database.prepared import Statement
from history.entities import CHILDREN, Entity
from history.held_messages import MessagePlace, Quarantined, VersionRange
from history.requests import deadline
from history.versions import Named

# Versions that one question finds at most: a document may have a million bad messages.
MOST = 1_000
# The largest number that the column of versions takes; somebody may ask for a larger one.
LARGEST_VERSION = 2**63 - 1

_COLUMNS = """
    q.entity, q.entity_id, q.version, q.reason, q.detail, q.status, q.first_seen, q.settled_at,
    q.outcome, q.application, q.made_at, q.topic, q.partition, q."offset"
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

# As the condition of two indexes.
_OPEN = "q.status IN ('new', 'retrying', 'failed')"
# One row at least, which has the two sums. `others`: whether a child of one of the applications may
# have messages that do not name it, which only the ids of the children find.
_OPEN_MESSAGES = f"""
    WITH chosen AS (
        SELECT its.id FROM unnest(%(kinds)s::text[], %(ids)s::text[]) AS document(kind, id)
        CROSS JOIN LATERAL (
            SELECT q.id FROM ingest_quarantine q
            WHERE q.entity = document.kind AND q.entity_id = document.id AND {_OPEN}
            ORDER BY q.version DESC LIMIT {MOST + 1}
        ) AS its
        UNION
        SELECT its.id FROM unnest(%(applications)s::text[]) AS application(id)
        CROSS JOIN LATERAL (
            SELECT q.id FROM ingest_quarantine q
            WHERE q.application = application.id AND q.application <> '' AND q.entity_id <> ''
                AND {_OPEN}
            LIMIT {MOST + 1}
        ) AS its
    ), sums AS (
        SELECT
            (SELECT count(*) FROM (
                SELECT FROM ingest_quarantine q
                WHERE q.entity = ANY(%(of)s::text[]) AND q.entity_id = '' AND {_OPEN} LIMIT {MOST}
            ) AS message) AS nameless,
            (SELECT count(*) = {MOST} OR coalesce(
                bool_or(NOT message.application = ANY(%(applications)s::text[])), false)
            FROM (
                SELECT q.application FROM ingest_quarantine q
                WHERE q.entity = ANY(%(children)s::text[]) AND q.entity_id <> '' AND {_OPEN}
                LIMIT {MOST}
            ) AS message) AS others
    )
    SELECT sums.nameless, sums.others, {_COLUMNS}
    FROM sums LEFT JOIN (chosen JOIN ingest_quarantine q USING (id)) ON true
    ORDER BY q.first_seen DESC, q.id DESC LIMIT {MOST + 1}
"""  # noqa: S608 - constants
_OF_DAYS = f"""
    SELECT count(*) FROM ingest_quarantine q
    WHERE q.entity = %s AND {_OPEN} AND (%s::date IS NULL OR q.day >= %s)
        AND (%s::date IS NULL OR q.day < %s)
"""  # noqa: S608 - constants


class OpenRows(NamedTuple):
    """What was read of open messages. others: as in _OPEN_MESSAGES. nameless: how many messages of
    the kinds name no document."""

    messages: list[Quarantined]
    others: bool
    nameless: int


def ask_open_messages(
    kinds: Iterable[Entity], documents: Collection[Named], applications: Collection[str]
) -> Statement:
    """Return the question for the open messages of these documents, and of the children that name
    these applications. kinds: those of which messages that name no document are counted."""
    values = {
        "of": [entity.name for entity in kinds],
        "kinds": [entity.name for entity, _ in documents],
        "ids": [id for _, id in documents],
        "applications": list(applications),
        "children": [entity.name for entity in CHILDREN] if applications else [],
    }
    return _OPEN_MESSAGES, values


def read_open_messages(rows: Sequence[tuple[Any, ...]]) -> OpenRows:
    """Return what the rows of that question say."""
    nameless, others = rows[0][:2]
    messages = [_quarantined(row[2:]) for row in rows if row[2] is not None]
    return OpenRows(messages, others, nameless)


def count_open_messages(entity: Entity, since: date | None, until: date | None) -> int:
    """Return how many open messages a kind has with versions of the days [since, until)."""
    deadline.check()
    with connection.cursor() as cursor:
        cursor.execute(_OF_DAYS, [entity.name, since, since, until, until])
        found: int = (cursor.fetchone() or (0,))[0]
        return found


def of_versions(
    entity: Entity, wanted: Iterable[VersionRange]
) -> Mapping[str, Mapping[int, Quarantined]]:
    """Of these versions those in quarantine or discarded there, or came out of it too late to be
    stored, by id and number, ascending. One query, none without wanted; the first MOST."""
    possible = [versions for versions in wanted if versions[1] <= LARGEST_VERSION]
    columns = [list(column) for column in zip(*possible, strict=True)]
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
