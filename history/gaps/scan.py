"""Finds the days that got rows since they were read, and adds their versions to those seen."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from hashlib import sha256
from typing import Any, Final, NamedTuple

from django.db import connection, transaction

from history.blocks.stored import versions
from history.daily.days import ADVISORY_SPACE, DayState
from history.daily.window import Window
from history.distribution.disk_use import held
from history.entities import BY_TABLE, Entity
from history.gap_models import GapDay
from history.partitions import catalog

# PostgreSQL counts the rows that a table got. If the count is lost, the other parts differ. It
# comes up to a minute after a commit: a day may be read once more, never once too few.
_MARKS = """
    SELECT name, concat_ws(' ', pg_relation_filenode(part), pg_relation_size(part),
        pg_stat_get_tuples_inserted(part),
        CASE current_setting('track_counts') WHEN 'on' THEN '' ELSE clock_timestamp()::text END,
        (SELECT timeline_id FROM pg_control_checkpoint()),
        (SELECT stats_reset FROM pg_stat_wal),
        (SELECT stats_reset FROM pg_stat_database WHERE datname = current_database()))
    FROM unnest(%s::text[]) AS name CROSS JOIN LATERAL to_regclass(quote_ident(name)) AS part
    WHERE part IS NOT NULL
"""


class ChangedDay(NamedTuple):
    """A partition to read: that of a UTC day, or a longer one that somebody else made. start, end:
    its bounds. mark: what it was before the reading began."""

    entity: Entity
    start: datetime
    end: datetime
    mark: str

    @property
    def day(self) -> date:
        """Its first day."""
        return self.start.astimezone(UTC).date()


def changed(window: Window) -> list[ChangedDay]:
    """Return the days of the window that got rows since they were read, newest first.

    A document's versions come in order, mostly with later days. A version that comes during the
    run is then in a day that is still to be read if one that came after it was seen; oldest first,
    it would be called missing until the next run.
    """
    parts = [part for part in catalog.read(connection, BY_TABLE) if part.state is DayState.ATTACHED]
    marks = _marks([part.name for part in parts])
    start = datetime.combine(window.oldest, time(), UTC)
    there = {
        (part.table, day.day): day
        for part in parts
        if part.start is not None and part.end is not None and part.name in marks
        for day in [ChangedDay(BY_TABLE[part.table], part.start, part.end, marks[part.name])]
    }
    known = {(each.table, each.day): each.mark for each in GapDay.objects.all()}
    for table, day in known.keys() - there.keys():
        GapDay.objects.filter(table=table, day=day).delete()
    found = [
        each for key, each in there.items() if each.end > start and each.mark != known.get(key)
    ]
    return sorted(found, key=lambda each: (each.start, each.entity.name), reverse=True)


def _marks(names: Sequence[str]) -> dict[str, str]:
    if there := held(connection.connection, names):
        return {name: sha256(each.mark.encode()).hexdigest() for name, each in there.items()}
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(_MARKS, [list(names)])
        return dict(cursor.fetchall())


# Every transaction of a run takes it, so that two runs at once do each thing once.
LOCK = (ADVISORY_SPACE << 32) + 1

# Without it Citus refuses results of more than a gigabyte: ids of a day's documents.
_LARGE: Final = "SET LOCAL citus.max_intermediate_result_size TO -1"
# From the primary key alone, in its order. On a cluster a document's versions and what is noted of
# it may be on different nodes: temporary tables have both. A document is looked at again if its
# lowest version is a new one that is not 0, or if versions between are or were missing.
_SCAN: Final = (
    """
CREATE TEMP TABLE gap_arrived ON COMMIT DROP AS
SELECT id, range_agg(int8range(version, version, '[]')) AS versions, min(version) AS lowest
FROM {table} AS stored WHERE stored_at >= %(start)s AND stored_at < %(end)s AND position > 0
GROUP BY id
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
_SEEN = 'SELECT 1 FROM gap_day WHERE "table" = %s AND day = %s AND mark = %s'


def scan(changed: ChangedDay) -> bool:
    """Read a day; False if another run has read it meanwhile. One transaction."""
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
        cursor.execute(_LARGE)
        for statement in _SCAN:
            cursor.execute(statement.format(table=versions(entity)), values)
    return True


def lock(cursor: Any) -> None:
    """Wait until no other run is inside a transaction; until the end of the present one."""
    cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
