"""Metrics of the PostgreSQL server that decide over loss and backups."""

from collections.abc import Iterator

from django.db import connection
from prometheus_client.core import Metric

from annals import metrics
from history.database.apart import apart
from history.metric import single

# A command that has never succeeded has no time of a success.
_FAILING = """
    SELECT last_failed_time > coalesce(last_archived_time, '-infinity')
    FROM pg_stat_archiver WHERE current_setting('archive_mode') <> 'off'
"""

# Citus completes or rolls back what a node left, once a minute (citus.recover_2pc_interval). What
# it has not named it leaves: any login can prepare a transaction, and take the places of all.
_PREPARED_LEFT = """
    SELECT sum(result::bigint) FILTER (WHERE success)
    FROM run_command_on_all_nodes($$ SELECT count(*) FROM pg_prepared_xacts
        WHERE database = current_database() AND prepared < now() - interval '5 minutes' $$)
"""


def wal_archive() -> Iterator[Metric]:
    """Whether the WAL leaves the server; nothing where no archive is set."""
    with connection.cursor() as cursor:
        cursor.execute(_FAILING)
        row = cursor.fetchone()
    if row is not None:
        yield single(metrics.WAL_ARCHIVE_FAILING, row[0] is True)


def prepared_left() -> Iterator[Metric]:
    """What distributed transactions left when a node ended; nothing in a plain installation."""
    if not apart():
        return
    with connection.cursor() as cursor:
        cursor.execute(_PREPARED_LEFT)
        (count,) = cursor.fetchone() or (None,)
    if count is not None:  # a node has answered
        yield single(metrics.PREPARED_LEFT, int(count))
