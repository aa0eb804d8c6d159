"""When the disk is full, from what the database can say."""

from dataclasses import dataclass
from datetime import date, timedelta

from django.conf import settings
from django.db import connection

from history.base import clock
from history.capacity.loads import measured
from history.partitions.catalog import Partition


@dataclass(frozen=True, slots=True)
class Disk:
    """Bytes. used: of the database; a_day: by which it grows until all days are there; in_the_end:
    its size then; 0 where no complete day has rows. size: of the disk, 0 if not known. full: the
    day on which it is, None for never, or if that is not known."""

    used: int
    a_day: int
    in_the_end: int
    size: int
    full: date | None


def disk(parts: list[Partition], today: date | None = None) -> Disk:
    """parts: those of the tables of versions."""
    today = today or clock.now().date()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_database_size(current_database())")
        (used,) = cursor.fetchone() or (0,)
    size, found = settings.ANNALS.disk_gb * 10**9, measured(connection, parts, today)
    if found is None:
        return Disk(used, 0, 0, size, None)
    a_day = int(sum(each.rows_per_day * (each.data + each.index) for each in found.loads))
    kept = settings.ANNALS.retention_days + 1
    there = len({part.day for part in parts if part.day and part.rows})
    in_the_end = used + a_day * max(0, kept - there)
    full = None
    if size and in_the_end > size and a_day:
        full = today + timedelta(days=max(0, (size - used) // a_day))
    return Disk(used, a_day, in_the_end, size, full)
