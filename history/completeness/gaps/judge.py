"""Decides which missing versions of a document are gaps, and opens and closes the gaps.

A missing version is a gap if it never arrived. It is not a gap if retention could have removed it.
The module history.timeline.absence decides what a viewer is told about a missing version.
"""

import logging
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

from django.db import connection, transaction

from history.completeness.gaps.scan import lock_gaps
from history.documents.record import ChangeType
from history.kinds.entities import EntityKind
from history.store.blocks.codec import DamagedBlockError
from history.store.blocks.queries import build_versions_query, read_snapshots

log = logging.getLogger(__name__)

DOCUMENTS_AT_ONCE = 2_000

_SELECT_PENDING: Final = "SELECT id FROM gap_pending WHERE entity = %s ORDER BY id LIMIT %s"
_DELETE_PENDING: Final = "DELETE FROM gap_pending WHERE entity = %s AND id = ANY(%s)"
# In a cluster, a document's versions and its row in gap_document may be on different nodes. So both
# are copied into temporary tables: this statement copies the rows of gap_document.
_STATE: Final = """
CREATE TEMP TABLE gap_state ON COMMIT DROP AS
SELECT entity, id, versions, lowest, judged, begun, since FROM gap_document
WHERE entity = %(entity)s AND id = ANY(%(ids)s)
"""
# _NEIGHBOURS looks up single ids in the tables of many days. Some of these tables do not have
# statistics yet, so PostgreSQL might choose to scan them.
_DISABLE_SCANS: Final = """
SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off
"""
_ENABLE_JOINS: Final = "SET LOCAL enable_hashjoin = on; SET LOCAL enable_mergejoin = on"
# Copies the stored versions next to missing versions, and the lowest version of each document that
# has a new lowest version. If a number has several rows, the row with the oldest moment is copied.
_NEIGHBOURS: Final = """
CREATE TEMP TABLE gap_row ON COMMIT DROP AS
WITH hole AS (
    SELECT id, unnest(range_merge(versions)::int8multirange - versions) AS missing FROM gap_state
), wanted AS (
    SELECT id, version, bool_or(new) AS new FROM (
        SELECT id, lower(missing) - 1 AS version, false AS new FROM hole
        UNION ALL SELECT id, upper(missing), false FROM hole
        UNION ALL SELECT id, lowest, lowest > 0 AND judged IS DISTINCT FROM lowest FROM gap_state
            WHERE judged IS DISTINCT FROM lowest OR NOT begun
    ) AS each GROUP BY id, version
)
SELECT DISTINCT ON (t.id, t.version) t.id, t.version, t.updated_at, t.client_id, t.type,
    CASE WHEN w.new THEN t.data->>%(created_at)s::text END AS created,
    CASE WHEN w.new THEN t.packed END AS packed, t.stored_at, t.position
FROM {table} t JOIN wanted w ON w.id = t.id AND w.version = t.version AND t.position > 0
ORDER BY t.id, t.version, t.updated_at
"""
_LOWEST: Final = """
SELECT d.id, d.lowest, row.type, row.updated_at, created, packed, stored_at, position
FROM gap_state d LEFT JOIN gap_row AS row ON row.id = d.id AND row.version = d.lowest
WHERE d.judged IS DISTINCT FROM d.lowest
"""
_JUDGED: Final = """
UPDATE {document} d SET judged = v.lowest, begun = v.begun, since = v.since
FROM unnest(%s::varchar[], %s::int[], %s::bool[], %s::timestamptz[]) AS v(id, lowest, begun, since)
WHERE d.entity = %s AND d.id = v.id
"""
# Selects the missing versions that are gaps, because both neighbours are stored within the window.
# If a neighbour is not stored there, retention may have removed the missing versions, too.
_WANTED: Final = """
CREATE TEMP TABLE gap_wanted ON COMMIT DROP AS
WITH hole AS (
    SELECT id, unnest(range_merge(versions)::int8multirange - versions) AS missing FROM gap_state
)
SELECT hole.id, missing, false AS beginning, least(below.updated_at, above.updated_at) AS since,
    above.updated_at AS until, above.client_id, NULL::timestamptz AS found_at,
    NULL::timestamptz AS asked_at
FROM hole JOIN gap_row AS below ON below.id = hole.id AND below.version = lower(missing) - 1
JOIN gap_row AS above ON above.id = hole.id AND above.version = upper(missing)
WHERE least(below.updated_at, above.updated_at) >= %(edge)s
UNION ALL
SELECT d.id, int8range(0, d.lowest), true, d.since, above.updated_at, above.client_id, NULL,
    NULL
FROM gap_state d JOIN gap_row AS above ON above.id = d.id AND above.version = d.lowest
WHERE NOT d.begun AND d.lowest > 0 AND d.since >= %(edge)s
"""
# Closes a gap if its versions arrived, or if retention may have removed them. A gap that has not
# changed stays open.
_CLOSE = """
WITH stale AS (
    DELETE FROM version_gap g WHERE g.closed_at IS NULL AND g.entity = %(entity)s
        AND g.document = ANY(%(ids)s) AND NOT EXISTS (SELECT FROM gap_wanted w
            WHERE w.id = g.document AND w.missing = int8range(g.first, g.last, '[]'))
    RETURNING g.*
), part AS (
    SELECT s.*, unnest(int8multirange(int8range(s.first, s.last, '[]')) * d.versions) AS piece,
        'arrived' AS became
    FROM stale s JOIN gap_state d ON d.entity = s.entity AND d.id = s.document
    UNION ALL
    SELECT s.*, unnest(int8multirange(int8range(s.first, s.last, '[]')) - d.versions
        - coalesce((SELECT range_agg(w.missing) FROM gap_wanted w WHERE w.id = s.document), '{}')
        ), 'expired'
    FROM stale s JOIN gap_state d ON d.entity = s.entity AND d.id = s.document
), closed AS (
    INSERT INTO version_gap (entity, document, first, last, beginning, client_id, since, until,
        found_at, asked_at, closed_at, outcome)
    SELECT entity, document, lower(piece), upper(piece) - 1, beginning, client_id, since, until,
        found_at, asked_at, now(), became FROM part
)
UPDATE gap_wanted w SET found_at = s.found_at, asked_at = s.asked_at FROM stale s
WHERE s.document = w.id AND w.missing && int8range(s.first, s.last, '[]')
"""
# Opens new gaps.
_OPEN = """
INSERT INTO version_gap (entity, document, first, last, beginning, client_id, since, until,
    found_at, asked_at)
SELECT %(entity)s, id, lower(missing), upper(missing) - 1, beginning, client_id, since, until,
    coalesce(found_at, now()), asked_at
FROM gap_wanted w WHERE NOT EXISTS (
    SELECT FROM version_gap g WHERE g.closed_at IS NULL AND g.entity = %(entity)s
        AND g.document = w.id AND w.missing = int8range(g.first, g.last, '[]'))
"""

_DROP: Final = "DROP TABLE gap_wanted, gap_state, gap_row"


def judge_documents(entity: EntityKind, edge: datetime) -> int:
    """Open and close the gaps of up to DOCUMENTS_AT_ONCE pending documents of a kind.

    Runs in one transaction. A document is pending if its gaps must be decided again.

    Args:
        edge: Missing versions that may be older than this moment are not gaps.

    Returns:
        The number of documents. 0: no document is pending.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        lock_gaps(cursor)
        cursor.execute(_SELECT_PENDING, [entity.name, DOCUMENTS_AT_ONCE])
        ids = [id for (id,) in cursor.fetchall()]
        if ids:
            cursor.execute(_DELETE_PENDING, [entity.name, ids])
            cursor.execute("SET LOCAL citus.propagate_set_commands TO 'local'")
            values: dict[str, Any] = {"entity": entity.name, "ids": ids, "edge": edge}
            cursor.execute(_STATE, values)
            cursor.execute(_DISABLE_SCANS)
            table = build_versions_query(entity)
            cursor.execute(_NEIGHBOURS.format(table=table), {"created_at": entity.created_at})
            cursor.execute(_ENABLE_JOINS)
            _judge_beginnings(cursor, entity)
            for statement in (_WANTED, _CLOSE, _OPEN):
                cursor.execute(statement, values)
            cursor.execute(_DROP)
    return len(ids)


def _judge_beginnings(cursor: Any, entity: EntityKind) -> None:
    """Find out for each document with a new lowest version whether older versions are missing.

    The results are stored in gap_document. No older version is missing if the lowest version has
    number 0 or creates the document.
    """
    cursor.execute(_LOWEST)
    columns: tuple[list[Any], ...] = ([], [], [], [])
    for id, lowest, kind, made_at, created, *block in cursor.fetchall():
        has_begun = lowest == 0 or kind == ChangeType.CREATE
        created_text = (
            None if has_begun else created or _read_created_at(cursor, entity, id, *block)
        )
        for column, value in zip(
            columns, (id, lowest, has_begun, _parse_since(created_text, made_at)), strict=True
        ):
            column.append(value)
    for document in ("gap_document", "gap_state"):
        cursor.execute(_JUDGED.format(document=document), [*columns, entity.name])


def _read_created_at(
    cursor: Any, entity: EntityKind, id: str, packed: bytes | None, stored_at: Any, position: int
) -> str | None:
    """Return the text of createdAt in the snapshot of a version in a block.

    Args:
        packed: The bytes of the block; None: the version is not in a block.
        stored_at: The moment of the block's row.
        position: The place of the version in the block, from 1.

    Returns:
        None if the version is not in a block, its snapshot does not have createdAt, or the block is
        damaged.
    """
    if packed is None:
        return None
    try:
        text = read_snapshots(connection.connection, entity.table, id, stored_at, packed)[
            position - 1
        ]
    except DamagedBlockError as error:
        log.warning("it is unknown whether %s %s lacks older versions: %s", entity.name, id, error)
        return None
    cursor.execute("SELECT %s::jsonb->>%s::text", [text.decode(), entity.created_at])
    [(created_text,)] = cursor.fetchall()
    return None if created_text is None else str(created_text)


def _parse_since(created: str | None, made_at: datetime | None) -> datetime | None:
    """Parse createdAt, the moment before which a document does not have versions.

    Args:
        created: The text of createdAt; None if the version does not have one.
        made_at: The moment of the version with this createdAt.

    Returns:
        None if `created` is not a moment, or is later than `made_at`.
    """
    try:
        moment = datetime.fromisoformat(created or "")
        moment = moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return moment if made_at is not None and moment <= made_at else None


def select_pending_kinds(entities: Iterable[EntityKind]) -> list[EntityKind]:
    """Return the kinds with documents that the next run must check for version gaps."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT DISTINCT entity FROM gap_pending")
        names = {name for (name,) in cursor.fetchall()}
    return [entity for entity in entities if entity.name in names]
