"""Capacity from real partitions, and the command."""

import io
import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from history.capacity import measured
from history.partitions import catalog
from tests.db import simulated
from tests.db.partitioned import raw

pytestmark = pytest.mark.usefixtures("tables")

TODAY = datetime.now(UTC).date()
YESTERDAY, BEFORE = TODAY - timedelta(days=1), TODAY - timedelta(days=2)


def capacity(*words: str) -> str:
    said = io.StringIO()
    call_command("capacity", *words, stdout=said, stderr=io.StringIO(), no_color=True)
    return said.getvalue()


def test_loads_are_those_of_complete_days() -> None:
    with raw() as plain:
        count = simulated.load(plain, BEFORE, applications=60)
        count += simulated.load(plain, YESTERDAY, applications=40, seed=2)
        simulated.load(plain, TODAY, applications=5, seed=3)
    parts = catalog.read(connection, simulated.TABLES)
    found = measured.loads(connection, parts, TODAY)
    assert found is not None
    assert (found.since, found.until) == (BEFORE, YESTERDAY)
    assert [load.table for load in found.loads] == simulated.TABLES
    assert sum(load.rows_per_day for load in found.loads) * 2 == pytest.approx(count)
    on_disk = sum(2 * load.rows_per_day * (load.data + load.index) for load in found.loads)
    stored = measured.stored(parts, TODAY)
    assert on_disk == pytest.approx(sum(size for _, size in stored), rel=1e-6)
    assert [day for day, _ in stored] == [BEFORE, YESTERDAY]


def test_the_command_measures_and_reports_what_retention_changes() -> None:
    with raw() as plain:
        simulated.load(plain, BEFORE, applications=60)
        simulated.load(plain, TODAY - timedelta(days=40), applications=10)
    answer: dict[str, Any] = json.loads(capacity("--json", "--days", "90", "--disk", "1T"))
    assert answer["basis"].endswith(str(BEFORE))
    assert set(answer["tables"]) == set(simulated.TABLES)
    by_days = {each["days"]: each for each in answer["retention"]}
    assert by_days[30]["freesNow"] > 0 == by_days[60]["freesNow"]
    assert by_days[30]["difference"] < 0 == by_days[90]["difference"] < by_days[180]["difference"]
    assert answer["fullOn"] == {"0.0": None, "0.25": None}
    text = capacity("--disk", "1M")
    assert f"at the current rate: full on {TODAY}." in text
    assert "growing by 25% a year" in text


def test_given_figures_need_no_partition() -> None:
    words = ("--rps", "200", "--avg-bytes", "1785", "--days", "90", "--growth", "0.25")
    text = capacity(*words, "--disk", "3T")
    assert "17,280,000" in text
    assert "full on" in text
    answer = json.loads(capacity(*words, "--json"))
    assert answer["disk"] is None
    parts = answer["total"]
    assert parts["total"] == pytest.approx(
        parts["data"] + parts["index"] + parts["wal"] + parts["reserve"]
    )


def test_without_rows_and_figures_the_command_fails() -> None:
    with pytest.raises(CommandError, match="Give --rps and --avg-bytes") as stopped:
        capacity()
    assert stopped.value.returncode == 1


def test_the_server_and_its_disk_are_asked() -> None:
    server = measured.server(connection)
    assert server.checkpoint_s >= 30
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_database_size(current_database()), current_setting('data_directory')"
        )
        ours, folder = cursor.fetchone() or (0, "")
    disk = measured.disk(connection)
    if Path(folder).is_dir():
        assert disk is not None
        assert ours < disk <= shutil.disk_usage(folder).total + ours
    else:
        assert disk is None
