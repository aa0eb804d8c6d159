"""The statements of gaps where the tables are distributed: a document's versions, and what is noted
of it, may be on different nodes. What a transaction works on is fetched into temporary tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

# Without it Citus refuses results of more than a gigabyte: ids of a day's documents.
_LARGE: Final = "SET LOCAL citus.max_intermediate_result_size TO -1"
# As the one statement of history.gaps.scan.
_SCAN: Final = (
    """
CREATE TEMP TABLE gap_arrived ON COMMIT DROP AS
SELECT id, range_agg(int8range(version, version, '[]')) AS versions, min(version) AS lowest
FROM {table} WHERE updated_at >= %(start)s AND updated_at < %(end)s GROUP BY id
""",
    """
CREATE TEMP TABLE gap_known ON COMMIT DROP AS
SELECT s.id, s.versions, s.lowest FROM gap_document s JOIN gap_arrived a ON a.id = s.id
WHERE s.entity = %(entity)s
""",
    """
CREATE TEMP TABLE gap_news ON COMMIT DROP AS
SELECT id, a.versions, a.lowest, s.lowest AS known_lowest,
    coalesce(s.versions + a.versions, a.versions) AS merged,
    least(s.lowest, a.lowest) AS merged_lowest
FROM gap_arrived a LEFT JOIN gap_known s USING (id)
WHERE s.id IS NULL OR NOT s.versions @> a.versions
""",
    """
INSERT INTO gap_document AS s (entity, id, versions, newest_day, lowest)
SELECT %(entity)s, id, versions, %(newest)s::date, lowest FROM gap_news
ON CONFLICT (entity, id) DO UPDATE SET versions = s.versions + excluded.versions,
    newest_day = greatest(s.newest_day, excluded.newest_day),
    lowest = least(s.lowest, excluded.lowest)
""",
    """
CREATE TEMP TABLE gap_open ON COMMIT DROP AS
SELECT DISTINCT document FROM version_gap WHERE closed_at IS NULL AND entity = %(entity)s
""",
    """
INSERT INTO gap_pending (entity, id)
SELECT %(entity)s, id FROM gap_news
WHERE (merged_lowest > 0 AND merged_lowest IS DISTINCT FROM known_lowest)
    OR NOT merged @> range_merge(merged) OR id IN (SELECT document FROM gap_open)
ON CONFLICT DO NOTHING
""",
    """
INSERT INTO gap_day ("table", day, mark, scanned_at) VALUES (%(name)s, %(day)s, %(mark)s, now())
ON CONFLICT ("table", day) DO UPDATE SET mark = excluded.mark, scanned_at = excluded.scanned_at
""",
    "DROP TABLE gap_arrived, gap_known, gap_news, gap_open",
)
_NEXT: Final = "SELECT id FROM gap_pending WHERE entity = %s ORDER BY id LIMIT %s"
_TAKE: Final = "DELETE FROM gap_pending WHERE entity = %s AND id = ANY(%s)"
# The documents, and of the versions next to missing ones the oldest row.
_STATE: Final = """
CREATE TEMP TABLE gap_state ON COMMIT DROP AS
SELECT entity, id, versions, lowest, judged, begun, since FROM gap_document
WHERE entity = %(entity)s AND id = ANY(%(ids)s)
"""
_NEIGHBOURS: Final = """
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
_DROP: Final = "DROP TABLE gap_state, gap_row"


def scan(cursor: Any, table: str, values: dict[str, Any]) -> None:
    """Add the versions of a day to those that were seen."""
    cursor.execute(_LARGE)
    for statement in _SCAN:
        cursor.execute(statement.format(table=table), values)


def take(cursor: Any, entity: str, count: int) -> list[str]:
    """Some pending documents, which are not pending any more."""
    cursor.execute(_NEXT, [entity, count])
    ids = [id for (id,) in cursor.fetchall()]
    if ids:
        cursor.execute(_TAKE, [entity, ids])
    return ids


def fetch(cursor: Any, table: str, entity: str, ids: Sequence[str], created_at: str | None) -> None:
    """Have these documents in gap_state, and rows next to what they miss in gap_row."""
    # Single ids in the tables of many days, some of them without statistics yet.
    cursor.execute("SET LOCAL citus.propagate_set_commands TO 'local'")
    cursor.execute("SET LOCAL enable_seqscan = off")
    values = {"entity": entity, "ids": list(ids), "created_at": created_at}
    cursor.execute(_STATE, values)
    cursor.execute(_NEIGHBOURS.format(table=table), values)


def forget(cursor: Any) -> None:
    """Drop what fetch made."""
    cursor.execute(_DROP)
