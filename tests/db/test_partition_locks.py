"""A statement over all days of a table holds no more locks than docs/partitions.md says."""

from datetime import timedelta

import pytest
from django.db import connection, transaction

from history.daily.window import Window
from history.partitions.maintain import maintain
from history.partitions.plan import Policy
from tests.db.partitioned import TABLE, TODAY


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("table, of_each_day", [(TABLE, 2), ("product_task_aud", 3)])
def test_a_timeline_over_all_days_has_room(table: str, of_each_day: int) -> None:
    window = Window(TODAY - timedelta(days=25), TODAY + timedelta(days=14))
    maintain(Policy(window, TODAY))
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table} WHERE id = 'a' ORDER BY updated_at LIMIT 1")
        cursor.execute(
            "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'relation'"
            " AND relation NOT IN ('pg_locks'::regclass)"
        )
        [held] = cursor.fetchone() or ()
    assert 40 < held <= (len(list(window.days())) + 1) * of_each_day
