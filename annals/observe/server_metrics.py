"""Metrics of the PostgreSQL server that decide over loss and backups."""

from collections.abc import Iterator

from django.db import connection
from prometheus_client.core import Metric

from annals import metrics
from history.metric import single

# A command that has never succeeded has no time of a success.
_FAILING = """
    SELECT last_failed_time > coalesce(last_archived_time, '-infinity')
    FROM pg_stat_archiver WHERE current_setting('archive_mode') <> 'off'
"""


def wal_archive() -> Iterator[Metric]:
    """Whether the WAL leaves the server; nothing where no archive is set."""
    with connection.cursor() as cursor:
        cursor.execute(_FAILING)
        row = cursor.fetchone()
    if row is not None:
        yield single(metrics.WAL_ARCHIVE_FAILING, row[0] is True)
