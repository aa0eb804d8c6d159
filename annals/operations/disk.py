"""Forecasts when the disk of the database will be full."""

from dataclasses import dataclass
from datetime import date, timedelta

from django.conf import settings
from django.db import connection

from history.common import clock
from history.retention.capacity.loads import measure_loads
from history.retention.catalog import Partition


@dataclass(frozen=True, slots=True)
class DiskForecast:
    """A forecast of how the database grows and when the disk is full. All sizes are in bytes.

    Attributes:
        used: The size of the database now.
        a_day: The growth per day until all days of retention exist. 0 while no complete day has
            rows, because the growth cannot be measured yet.
        in_the_end: The size of the database when all days of retention exist. 0 while the growth
            cannot be measured yet.
        size: The size of the disk. 0: not known.
        full: The day on which the disk is full. None: never, or not known.
    """

    used: int
    a_day: int
    in_the_end: int
    size: int
    full: date | None


def forecast_disk(partitions: list[Partition], today: date | None = None) -> DiskForecast:
    """Forecast how the database grows, and on which day the disk is full.

    Args:
        partitions: The partitions of the tables of versions. The growth is measured on them.
        today: The current day in UTC. None: read the clock.
    """
    today = today or clock.now().date()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_database_size(current_database())")
        (used,) = cursor.fetchone() or (0,)
    size, measurement = (
        settings.ANNALS.disk_gb * 10**9,
        measure_loads(connection, partitions, today),
    )
    if measurement is None:
        return DiskForecast(used, 0, 0, size, None)
    a_day = int(sum(load.rows_per_day * (load.data + load.index) for load in measurement.loads))
    kept_days = settings.ANNALS.retention_days + 1
    present_days = len(
        {partition.day for partition in partitions if partition.day and partition.rows}
    )
    in_the_end = used + a_day * max(0, kept_days - present_days)
    full = None
    if size and in_the_end > size and a_day:
        full = today + timedelta(days=max(0, (size - used) // a_day))
    return DiskForecast(used, a_day, in_the_end, size, full)
