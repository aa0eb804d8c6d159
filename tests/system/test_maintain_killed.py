"""A maintain that is killed at any point leaves nothing that the next one does not put right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.db import connection

from history import days
from history.archive import manifest
from history.archive.store import Store
from history.entities import ENTITIES
from history.partitions import catalog
from history.partitions.plan import SPARE_DAYS
from tests.db import simulated
from tests.db.partitioned import TABLES, raw, tables, transactional_db

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
    command = [sys.executable, "manage.py", "partitions", "maintain", "--json"]
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
