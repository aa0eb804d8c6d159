"""The days that should be packed and are not, and why."""

from datetime import date

from django.conf import settings
from django.db import connection

from history import packing
from history.entities import ENTITIES
from history.partitions import catalog
from history.seals import day_snapshot
from ingest.completeness.holds import may_get_rows


def not_packed(today: date) -> dict[tuple[str, date], str]:
    """Tables and days that should be packed, the newest first, each with why it waits: it may still
    get rows; empty where it does not."""
    connection.ensure_connection()
    if day_snapshot.spread(connection.connection, ENTITIES[0].table):
        return {}
    existing = catalog.read(connection, [entity.table for entity in ENTITIES])
    days = packing.due(existing, today, settings.ANNALS.pack_after_days)
    waiting = may_get_rows(set(days))
    return {each: waiting.get(each, "") for each in days}
