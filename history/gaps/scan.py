"""Adds the versions of one day to those that were seen, in one statement."""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import Any

from django.db import connection, transaction
from psycopg import sql

from history.database.apart import apart
from history.days import ADVISORY_SPACE
from history.gaps import spread
from history.gaps.days import ChangedDay

# Every transaction of a run takes it, so that two runs at once do each thing once.
LOCK = (ADVISORY_SPACE << 32) + 1

# Ids and versions come from the primary key alone, in its order: no document is read.
# A document is looked at again if its lowest version is a new one that is not 0, if versions
# between are missing, or were missing.
_SCAN = """
WITH arrived AS MATERIALIZED (
    SELECT id, range_agg(int8range(version, version, '[]')) AS versions, min(version) AS lowest
    FROM {table} WHERE updated_at >= %(start)s AND updated_at < %(end)s GROUP BY id
), news AS MATERIALIZED (
    SELECT a.*, s.lowest AS known_lowest
    FROM arrived a LEFT JOIN gap_document s ON s.entity = %(entity)s AND s.id = a.id
    WHERE s.id IS NULL OR NOT s.versions @> a.versions
), merged AS (
    INSERT INTO gap_document AS s (entity, id, versions, newest_day, lowest)
    SELECT %(entity)s, id, versions, %(newest)s, lowest FROM news
    ON CONFLICT (entity, id) DO UPDATE SET versions = s.versions + excluded.versions,
        newest_day = greatest(s.newest_day, excluded.newest_day),
        lowest = least(s.lowest, excluded.lowest)
    RETURNING id, versions, lowest
), pending AS (
    INSERT INTO gap_pending (entity, id)
    SELECT %(entity)s, m.id FROM merged m JOIN news USING (id)
    WHERE (m.lowest > 0 AND m.lowest IS DISTINCT FROM news.known_lowest)
        OR NOT m.versions @> range_merge(m.versions)
        OR EXISTS (SELECT FROM version_gap g WHERE g.closed_at IS NULL
            AND g.entity = %(entity)s AND g.document = m.id)
    ON CONFLICT DO NOTHING
)
INSERT INTO gap_day ("table", day, mark, scanned_at) VALUES (%(name)s, %(day)s, %(mark)s, now())
ON CONFLICT ("table", day) DO UPDATE SET mark = excluded.mark, scanned_at = excluded.scanned_at
"""
_SEEN = 'SELECT 1 FROM gap_day WHERE "table" = %s AND day = %s AND mark = %s'


def scan(changed: ChangedDay) -> bool:
    """Read a day; False if another run has read it meanwhile. One transaction: a run that is killed
    in it has read nothing of the day."""
    entity, day = changed.entity, changed.day
    values: dict[str, Any] = {
        "entity": entity.name,
        "name": entity.table,
        "day": day,
        "newest": (changed.end - timedelta(microseconds=1)).astimezone(UTC).date(),
        "mark": changed.mark,
        "start": changed.start,
        "end": changed.end,
    }
    with transaction.atomic(), connection.cursor() as cursor:
        lock(cursor)
        cursor.execute(_SEEN, [entity.table, day, changed.mark])
        if cursor.fetchone():
            return False
        # In the order of the primary key: grouping needs no memory for the ids of a day.
        cursor.execute("SET LOCAL enable_hashagg = off")
        table = sql.Identifier(entity.table).as_string()
        if apart():
            spread.scan(cursor, table, values)
            return True
        cursor.execute(_SCAN.format(table=table), values)
    return True


def lock(cursor: Any) -> None:
    """Wait until no other run is inside a transaction; until the end of the present one."""
    cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
