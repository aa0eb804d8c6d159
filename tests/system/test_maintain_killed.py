"""A restore whose process is killed while PostgreSQL still works on its last statement.

tests/db/test_days_killed_anywhere.py ends maintain and restore before each statement.
"""

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection

from history.daily import days
from history.entities import ENTITIES
from tests.consuming import until
from tests.db import simulated
from tests.db.partitioned import TABLES, raw, stored, tables, transactional_db

__all__ = ["tables", "transactional_db"]
pytestmark = [pytest.mark.system, pytest.mark.usefixtures("tables")]

TODAY = datetime.now(UTC).date()
OLD = TODAY - timedelta(days=14)


def environment(folder: Path) -> dict[str, str]:
    mine = connection.settings_dict
    login = f"{mine['USER']}:{mine['PASSWORD']}"
    return {
        **os.environ,
        "DATABASE_URL": f"postgresql://{login}@{mine['HOST']}:{mine['PORT']}/{mine['NAME']}",
        "ANNALS_RETENTION_DAYS": "5",
        "ANNALS_AHEAD_DAYS": "1",
        "ANNALS_ARCHIVE_URL": str(folder),
    }


def test_a_killed_restore_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    """Killed while it waits to put the filled table into its place, which is its last step."""
    of, table = OLD, min(TABLES)
    partition = days.partition_name(table, of)
    entity = next(entity.name for entity in ENTITIES if entity.table == table)
    command = [sys.executable, "manage.py", "partitions"]
    with raw() as plain:
        simulated.load(plain, of, applications=30)
        rows = stored(plain, partition)
        subprocess.run([*command, "maintain", "--force"], env=environment(tmp_path), check=True)
        days.create(plain, table, of)
        with raw() as reader, reader.transaction():
            stored(reader, table)
            process = subprocess.Popen(
                [*command, "restore", str(of), "--entity", entity],
                env=environment(tmp_path),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            until(lambda: detaches(plain) or process.poll() is not None, "it does not wait")
            process.kill()
            said, _ = process.communicate()
            assert process.returncode == -signal.SIGKILL, said
        until(lambda: not detaches(plain), "its session does not end")
        names = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE %s"
        assert plain.execute(names, [f"{partition}%"]).fetchall() == [(partition,)]
        noon = datetime(of.year, of.month, of.day, 12, tzinfo=UTC)
        columns = "id, version, data, updated_at, client_id, type, product_instance_id"
        plain.execute(
            f"INSERT INTO {table} ({columns}) VALUES ('late', 1, '{{}}', %s, 'test', 1, 'a')",
            [noon],
        )
        again = subprocess.run(
            [*command, "restore", str(of), "--entity", entity],
            env=environment(tmp_path),
            capture_output=True,
            text=True,
        )
        assert again.returncode == 0, again.stderr
        assert stored(plain, partition) == rows + 1


def detaches(plain: psycopg.Connection[Any]) -> int:
    """How many sessions try to detach a partition."""
    row = plain.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND pid <> pg_backend_pid() AND query LIKE '%%DETACH PARTITION%%'"
    ).fetchone()
    assert row is not None
    return int(row[0])
