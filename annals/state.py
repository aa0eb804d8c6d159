"""The store's own state as Prometheus metrics, read from the database at each scrape."""

import logging
from collections.abc import Iterator
from datetime import UTC, datetime

from django.db import Error as DatabaseError
from django.db import connection
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from annals.logs import describe
from history.entities import ENTITIES

log = logging.getLogger(__name__)

NEWEST_DAYS = """
SELECT parent.relname, max(right(child.relname, 8))
FROM pg_inherits
JOIN pg_class parent ON parent.oid = inhparent
JOIN pg_class child ON child.oid = inhrelid
WHERE parent.relkind = 'p' AND parent.relname = ANY(%s) AND child.relname ~ '_[0-9]{8}$'
GROUP BY 1
"""


class State(Collector):
    """annals_database_up, and where that is 1 everything else."""

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("annals_database_up", "Whether the database answers")
        try:
            families = list(_partitions())
        except DatabaseError as error:
            log.warning("metrics: %s", describe(error))
            families = []
            up.add_metric([], 0)
        else:
            up.add_metric([], 1)
        yield up
        yield from families


def _partitions() -> Iterator[Metric]:
    """How many days ahead of today every table has its partition; negative: already missing."""
    family = GaugeMetricFamily(
        "annals_partition_days_ahead",
        "Days between today and the newest partition",
        labels=["table"],
    )
    today = datetime.now(UTC).date()
    with connection.cursor() as cursor:
        cursor.execute(NEWEST_DAYS, [[entity.table for entity in ENTITIES]])
        newest = dict(cursor.fetchall())
    for entity in ENTITIES:
        if entity.table in newest:
            day = datetime.strptime(newest[entity.table], "%Y%m%d").replace(tzinfo=UTC).date()
            family.add_metric([entity.table], (day - today).days)
    yield family
