"""A maintain that is killed at any point leaves nothing that the next one does not put right."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection

from history.archive import manifest
from history.archive.store import Store
from history.daily import days
from history.entities import ENTITIES
from history.partitions import catalog
from history.partitions.plan import SPARE_DAYS
from tests.db import simulated
from tests.db.partitioned import TABLES, raw, stored, tables, transactional_db

__all__ = ["tables", "transactional_db"]
pytestmark = [pytest.mark.system, pytest.mark.usefixtures("tables")]

TODAY = datetime.now(UTC).date()
OLD = [TODAY - timedelta(days=number) for number in range(14, 8, -1)]


def environment(folder: Path) -> dict[str, str]:
    mine = connection.settings_dict
    login = f"{mine['USER']}:{mine['PASSWORD']}"
    return {
        **os.environ,
        "DATABASE_URL": f"postgresql://{login}@{mine['HOST']}:{mine['PORT']}/{mine['NAME']}",
        "ANNALS_RETENTION_DAYS": "5",
        "ANNALS_AHEAD_DAYS": "20",
        "ANNALS_ARCHIVE_URL": str(folder),
    }


def test_killed_again_and_again_it_still_gets_there(tmp_path: Path) -> None:
    command = [sys.executable, "manage.py", "partitions", "maintain", "--force", "--json"]
    rows = {}
    with raw() as plain:
        for number, of in enumerate(OLD):
            rows[of] = simulated.load(plain, of, applications=30, seed=number)
    killed = 0
    for patience in (0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0):
        process = subprocess.Popen(
            command, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        time.sleep(patience)
        killed += process.poll() is None
        process.kill()
        process.communicate()
    deadline = time.monotonic() + 60
    while True:
        done = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True)
        if done.returncode != 1 or time.monotonic() > deadline:
            break
        time.sleep(0.5)  # the backend of the one killed last still works on its last statement
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["broken"] == []
    assert killed
    store = Store(str(tmp_path))
    for of in OLD:
        kept = [manifest.load(store, entity.table, of) for entity in ENTITIES]
        assert sum(each.rows for each in kept if each) == rows[of]
    window = [TODAY + timedelta(days=number) for number in range(-5, 21 + SPARE_DAYS)]
    assert [part.name for part in catalog.read(connection, sorted(TABLES))] == [
        days.partition_name(table, of) for table in sorted(TABLES) for of in window
    ]


def test_a_killed_restore_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    """Killed while it waits to put the filled table into its place, which is its last step."""
    of, table = OLD[0], min(TABLES)
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
            wait_until(lambda: detaches(plain) or process.poll() is not None)
            process.kill()
            said, _ = process.communicate()
            assert process.returncode == -signal.SIGKILL, said
        wait_until(lambda: not detaches(plain))
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


def wait_until(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
