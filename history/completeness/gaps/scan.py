"""Reads the version numbers of the days that got rows since they were last read."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from hashlib import sha256
from typing import Any, Final, NamedTuple

from django.db import connection, transaction

from history.kinds.entities import BY_TABLE, EntityKind
from history.models import GapDay
from history.retention import catalog
from history.store.blocks.queries import build_versions_query
from history.store.days.day_locks import ADVISORY_SPACE
from history.store.days.days import DayState
from history.store.days.window import Window
from history.store.distribution.disk_use import measure_disk_use

# Selects a mark for each partition. The mark changes when the day gets rows, because it contains
# PostgreSQL's count of inserted rows. The other parts of the mark change if that count was reset.
# The count can be up to a minute late. Then a day is read once more than needed, but never too
# seldom.
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
    """A partition of a table that got rows since `scan_day` read it.

    The partition covers one UTC day, or more if Annals did not create the partition.
    """

    entity: EntityKind
    start: datetime  # the first moment of the partition
    end: datetime  # the first moment after it
    mark: str  # what _MARKS selected before the partition was read

    @property
    def day(self) -> date:
        """The UTC day of the first moment of the partition."""
        return self.start.astimezone(UTC).date()


def find_changed_days(window: Window) -> list[ChangedDay]:
    """Return the days of the window that got rows since `scan_day` read them, newest first.

    Also delete the rows of GapDay for days with a partition that does not exist any more.
    """
    partitions = [
        partition
        for partition in catalog.read_partitions(connection, BY_TABLE)
        if partition.state is DayState.ATTACHED
    ]
    marks = _fetch_marks([partition.name for partition in partitions])
    start = datetime.combine(window.oldest, time(), UTC)
    days = {
        (partition.table, day.day): day
        for partition in partitions
        if partition.start is not None and partition.end is not None and partition.name in marks
        for day in [
            ChangedDay(
                BY_TABLE[partition.table], partition.start, partition.end, marks[partition.name]
            )
        ]
    }
    known_marks = {(gap_day.table, gap_day.day): gap_day.mark for gap_day in GapDay.objects.all()}
    for table, day in known_marks.keys() - days.keys():
        GapDay.objects.filter(table=table, day=day).delete()
    changed_days = [
        changed_day
        for key, changed_day in days.items()
        if changed_day.end > start and changed_day.mark != known_marks.get(key)
    ]
    return sorted(
        changed_days,
        key=lambda changed_day: (changed_day.start, changed_day.entity.name),
        reverse=True,
    )


def _fetch_marks(names: Sequence[str]) -> dict[str, str]:
    if disk_use := measure_disk_use(connection.connection, names):
        return {name: sha256(use.mark.encode()).hexdigest() for name, use in disk_use.items()}
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(_MARKS, [list(names)])
        return dict(cursor.fetchall())


# The advisory lock that every transaction of `annals gaps` holds. It keeps two runs from working on
# the same day or document.
LOCK = (ADVISORY_SPACE << 32) + 1

# Without this, Citus refuses intermediate results above a gigabyte, such as the ids of a day.
_ALLOW_LARGE_RESULTS: Final = "SET LOCAL citus.max_intermediate_result_size TO -1"
# The scan reads the primary key alone, in its order. In a cluster, a document's versions and its
# row in gap_document may be on different nodes, so both are copied into temporary tables. A
# document becomes pending if it has a new lowest version other than 0, or if versions between its
# lowest and highest are or were missing.
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


def scan_day(changed: ChangedDay) -> bool:
    """Read a day in one transaction.

    Return False if a different run of `annals gaps` has read the day since find_changed_days.
    """
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
        lock_gaps(cursor)
        cursor.execute(_SEEN, [entity.table, day, changed.mark])
        if cursor.fetchone():
            return False
        # Grouping in the order of the primary key needs no memory for the ids of a whole day.
        cursor.execute("SET LOCAL enable_hashagg = off")
        cursor.execute(_ALLOW_LARGE_RESULTS)
        versions = build_versions_query(entity)
        for statement in _SCAN:
            cursor.execute(statement.format(table=versions), values)
    return True


def lock_gaps(cursor: Any) -> None:
    """Lock out other runs of `annals gaps` until the transaction ends. Waits for the lock."""
    cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
