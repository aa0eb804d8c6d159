"""A statement over all days of a table holds no more locks than `partitions plan` asks room for."""

from datetime import timedelta

import pytest
from django.db import connection, transaction

from history.daily.window import Window
from history.partitions import state
from history.partitions.maintain import maintain
from history.partitions.plan import Policy, plan
from tests.db.partitioned import TABLE, TODAY


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("table", [TABLE, "product_task_aud"])
def test_a_timeline_over_all_days_has_room(table: str) -> None:
    policy = Policy(Window(TODAY - timedelta(days=25), TODAY + timedelta(days=14)), TODAY)
    maintain(policy)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table} WHERE id = 'a' ORDER BY updated_at LIMIT 1")
        cursor.execute(
            "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'relation'"
            " AND relation NOT IN ('pg_locks'::regclass)"
        )
        [held] = cursor.fetchone() or ()
    assert 40 < held <= state.count(connection, plan(policy)).needed
