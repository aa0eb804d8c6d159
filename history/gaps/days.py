"""Which days got rows since they were last read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from hashlib import sha256
from typing import NamedTuple

from django.db import connection

from history.database.apart import apart
from history.days import State
from history.distribution.held import held
from history.entities import ENTITIES, Entity
from history.gap_models import GapDay
from history.partitions import catalog
from history.window import Window

# PostgreSQL counts the rows that a table got. The count survives no crash, failover or reset of the
# statistics: then the other parts differ. It is reported up to a minute after a commit, so a day
# may be read once more, and never once too few.
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


def changed(window: Window, entities: Sequence[Entity] = ENTITIES) -> list[ChangedDay]:
    """The days of the window that got rows since they were read, oldest first. Forgets the marks of
    days that are gone."""
    of_table = {entity.table: entity for entity in entities}
    parts = [part for part in catalog.read(connection, of_table) if part.state is State.ATTACHED]
    marks = _marks([part.name for part in parts])
    start = datetime.combine(window.oldest, time(), UTC)
    there = {
        (part.table, day.day): day
        for part in parts
        if part.start is not None and part.end is not None and part.name in marks
        for day in [ChangedDay(of_table[part.table], part.start, part.end, marks[part.name])]
    }
    known = {(each.table, each.day): each.mark for each in GapDay.objects.all()}
    for table, day in known.keys() - there.keys():
        if table in of_table:
            GapDay.objects.filter(table=table, day=day).delete()
    found = [
        each for key, each in there.items() if each.end > start and each.mark != known.get(key)
    ]
    return sorted(found, key=lambda each: (each.start, each.entity.name))


def _marks(names: Sequence[str]) -> dict[str, str]:
    if apart():
        there = held(connection.connection, names)
        return {name: sha256(each.mark.encode()).hexdigest() for name, each in there.items()}
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(_MARKS, [list(names)])
        return dict(cursor.fetchall())
