"""Decides which missing versions of a document are gaps, and opens and closes these."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from django.db import connection, transaction

from history.blocks.stored import texts, versions
from history.entities import Entity
from history.gaps.scan import lock
from history.record import ChangeType

DOCUMENTS_AT_ONCE = 2_000

_TAKE = """
DELETE FROM gap_pending WHERE entity = %s AND id = ANY(ARRAY(
    SELECT id FROM gap_pending WHERE entity = %s ORDER BY id LIMIT %s)) RETURNING id
"""
_LOWEST = """
SELECT d.id, d.lowest, row.type, row.updated_at, row.created, row.packed, stored_at, position
FROM {document} d LEFT JOIN LATERAL (
    SELECT type, updated_at, {created} AS created, {block} FROM {rows} t
    WHERE t.id = d.id AND t.version = d.lowest ORDER BY updated_at LIMIT 1
) AS row ON true
WHERE d.entity = %s AND d.id = ANY(%s) AND d.judged IS DISTINCT FROM d.lowest
"""
_JUDGED = """
UPDATE {document} d SET judged = v.lowest, begun = v.begun, since = v.since
FROM unnest(%s::varchar[], %s::int[], %s::bool[], %s::timestamptz[]) AS v(id, lowest, begun, since)
WHERE d.entity = %s AND d.id = v.id
"""
_BLOCK = "packed, stored_at, position"
_NO_BLOCK = "NULL::bytea AS packed, updated_at AS stored_at, 1 AS position"
# As fetched: of a kind that has no createdAt nothing is.
_CREATED = "CASE WHEN %s::text IS NOT NULL THEN created END"
# The missing versions that are gaps now, with their neighbours: retention may have removed both.
_WANTED = """
CREATE TEMP TABLE gap_wanted ON COMMIT DROP AS
WITH hole AS (
    SELECT id, unnest(range_merge(versions)::int8multirange - versions) AS missing
    FROM {document} WHERE entity = %(entity)s AND id = ANY(%(ids)s)
)
SELECT hole.id, missing, false AS beginning, least(below.updated_at, above.updated_at) AS since,
    above.updated_at AS until, above.client_id, NULL::timestamptz AS found_at,
    NULL::timestamptz AS asked_at
FROM hole CROSS JOIN LATERAL (
    SELECT updated_at FROM {rows} t WHERE t.id = hole.id AND t.version = lower(missing) - 1
    ORDER BY updated_at LIMIT 1
) AS below CROSS JOIN LATERAL (
    SELECT updated_at, client_id FROM {rows} t WHERE t.id = hole.id AND t.version = upper(missing)
    ORDER BY updated_at LIMIT 1
) AS above
WHERE least(below.updated_at, above.updated_at) >= %(edge)s
UNION ALL
SELECT d.id, int8range(0, d.lowest), true, d.since, above.updated_at, above.client_id, NULL,
    NULL
FROM {document} d CROSS JOIN LATERAL (
    SELECT updated_at, client_id FROM {rows} t WHERE t.id = d.id AND t.version = d.lowest
    ORDER BY updated_at LIMIT 1
) AS above
WHERE d.entity = %(entity)s AND d.id = ANY(%(ids)s)
    AND NOT d.begun AND d.lowest > 0 AND d.since >= %(edge)s
"""
# What is missing as before stays. What arrived or is unknown now is closed; the rest is opened.
_CLOSE = """
WITH stale AS (
    DELETE FROM version_gap g WHERE g.closed_at IS NULL AND g.entity = %(entity)s
        AND g.document = ANY(%(ids)s) AND NOT EXISTS (SELECT FROM gap_wanted w
            WHERE w.id = g.document AND w.missing = int8range(g.first, g.last, '[]'))
    RETURNING g.*
), came AS (
    SELECT s.id, int8multirange(int8range(s.first, s.last, '[]')) * d.versions AS there
    FROM stale s JOIN {document} d ON d.entity = s.entity AND d.id = s.document
), part AS (
    SELECT s.*, unnest(c.there) AS piece, 'arrived' AS became
    FROM came c JOIN stale s ON s.id = c.id
    UNION ALL
    SELECT s.*, unnest(int8multirange(int8range(s.first, s.last, '[]')) - d.versions
        - coalesce((SELECT range_agg(w.missing) FROM gap_wanted w WHERE w.id = s.document), '{{}}')
        ), 'expired'
    FROM stale s JOIN {document} d ON d.entity = s.entity AND d.id = s.document
), closed AS (
    INSERT INTO version_gap (entity, document, first, last, beginning, client_id, since, until,
        found_at, asked_at, closed_at, outcome)
    SELECT entity, document, lower(piece), upper(piece) - 1, beginning, client_id, since, until,
        found_at, asked_at, now(), became FROM part
)
UPDATE gap_wanted w SET found_at = s.found_at, asked_at = s.asked_at FROM stale s
WHERE s.document = w.id AND w.missing && int8range(s.first, s.last, '[]')
"""
_OPEN = """
INSERT INTO version_gap (entity, document, first, last, beginning, client_id, since, until,
    found_at, asked_at)
SELECT %(entity)s, id, lower(missing), upper(missing) - 1, beginning, client_id, since, until,
    coalesce(found_at, now()), asked_at
FROM gap_wanted w WHERE NOT EXISTS (
    SELECT FROM version_gap g WHERE g.closed_at IS NULL AND g.entity = %(entity)s
        AND g.document = w.id AND w.missing = int8range(g.first, g.last, '[]'))
"""

# Versions and notes of a document may be on different nodes: temporary tables have both.
_CITUS_NEXT: Final = "SELECT id FROM gap_pending WHERE entity = %s ORDER BY id LIMIT %s"
_CITUS_TAKE: Final = "DELETE FROM gap_pending WHERE entity = %s AND id = ANY(%s)"
# The documents, and of the versions next to missing ones the oldest row.
_CITUS_STATE: Final = """
CREATE TEMP TABLE gap_state ON COMMIT DROP AS
SELECT entity, id, versions, lowest, judged, begun, since FROM gap_document
WHERE entity = %(entity)s AND id = ANY(%(ids)s)
"""
_CITUS_NEIGHBOURS: Final = """
CREATE TEMP TABLE gap_row ON COMMIT DROP AS
WITH hole AS (
    SELECT id, unnest(range_merge(versions)::int8multirange - versions) AS missing FROM gap_state
), wanted AS (
    SELECT id, lower(missing) - 1 AS version FROM hole UNION SELECT id, upper(missing) FROM hole
    UNION SELECT id, lowest FROM gap_state
)
SELECT DISTINCT ON (t.id, t.version) t.id, t.version, t.updated_at, t.client_id, t.type,
    CASE WHEN d.judged IS DISTINCT FROM t.version AND d.lowest = t.version
        THEN t.data->>%(created_at)s::text END AS created
FROM {table} t JOIN wanted w ON w.id = t.id AND w.version = t.version
JOIN gap_state d ON d.id = t.id
ORDER BY t.id, t.version, t.updated_at
"""
_CITUS_DROP: Final = "DROP TABLE gap_state, gap_row"


def judge(entity: Entity, edge: datetime, *, apart: bool) -> int:
    """Look at some of the documents of a kind that are pending; returns how many. edge: a version
    that may be older is no gap. One transaction."""
    with transaction.atomic(), connection.cursor() as cursor:
        lock(cursor)
        ids = _take(cursor, entity, apart)
        if ids:
            names = _names(cursor, entity, ids, apart)
            _beginnings(cursor, entity, names, ids)
            values: dict[str, Any] = {"entity": entity.name, "ids": ids, "edge": edge}
            cursor.execute(_WANTED.format(**names), values)
            cursor.execute(_CLOSE.format(**names), values)
            cursor.execute(_OPEN, values)
            cursor.execute("DROP TABLE gap_wanted")
            if apart:
                cursor.execute(_CITUS_DROP)
    return len(ids)


def _take(cursor: Any, entity: Entity, apart: bool) -> list[str]:
    """Some documents that are pending, which then are not any more."""
    if apart:
        cursor.execute(_CITUS_NEXT, [entity.name, DOCUMENTS_AT_ONCE])
        ids = [id for (id,) in cursor.fetchall()]
        if ids:
            cursor.execute(_CITUS_TAKE, [entity.name, ids])
        return ids
    cursor.execute(_TAKE, [entity.name, entity.name, DOCUMENTS_AT_ONCE])
    return [id for (id,) in cursor.fetchall()]


def _names(cursor: Any, entity: Entity, ids: Sequence[str], apart: bool) -> dict[str, str]:
    """What the statements read: the tables, or what was fetched of them from several nodes."""
    table = versions(entity)
    # No sequential scans: single ids in the tables of many days, some without statistics yet.
    if apart:
        cursor.execute("SET LOCAL citus.propagate_set_commands TO 'local'")
        cursor.execute("SET LOCAL enable_seqscan = off")
        values = {"entity": entity.name, "ids": ids, "created_at": entity.created_at}
        cursor.execute(_CITUS_STATE, values)
        cursor.execute(_CITUS_NEIGHBOURS.format(table=table), values)
        names = {"document": "gap_state", "rows": "gap_row"}
        return {**names, "created": _CREATED, "block": _NO_BLOCK}
    cursor.execute("SET LOCAL enable_seqscan = off")
    names = {"document": "gap_document", "rows": table}
    return {**names, "created": "data->>%s::text", "block": _BLOCK}


def _beginnings(cursor: Any, entity: Entity, names: Mapping[str, str], ids: Sequence[str]) -> None:
    """Find out for documents with a new lowest version whether older ones are missing."""
    cursor.execute(_LOWEST.format(**names), [entity.created_at, entity.name, ids])
    columns: tuple[list[Any], ...] = ([], [], [], [])
    for id, lowest, kind, made_at, created, *block in cursor.fetchall():
        begun = lowest == 0 or kind == ChangeType.CREATE
        said = None if begun else created or _created(cursor, entity, id, *block)
        for column, value in zip(columns, (id, lowest, begun, _since(said, made_at)), strict=True):
            column.append(value)
    for document in dict.fromkeys(("gap_document", names["document"])):
        cursor.execute(_JUDGED.format(document=document), [*columns, entity.name])


def _created(
    cursor: Any, entity: Entity, id: str, packed: bytes | None, stored_at: Any, position: int
) -> str | None:
    """The createdAt of a version in a block."""
    if packed is None:
        return None
    text = texts(connection.connection, entity.table, id, stored_at, packed)[position - 1]
    cursor.execute("SELECT %s::jsonb->>%s::text", [text.decode(), entity.created_at])
    [(found,)] = cursor.fetchall()
    return None if found is None else str(found)


def _since(created: str | None, made_at: datetime | None) -> datetime | None:
    """The moment before which no version of a document is dated: its createdAt. None if that is
    wrong, or later than a version."""
    try:
        moment = datetime.fromisoformat(created or "")
        moment = moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return moment if made_at is not None and moment <= made_at else None


def pending(entities: Iterable[Entity]) -> list[Entity]:
    """Those of the kinds that have documents to look at."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT DISTINCT entity FROM gap_pending")
        names = {name for (name,) in cursor.fetchall()}
    return [entity for entity in entities if entity.name in names]
