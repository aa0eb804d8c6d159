"""The capacity forecast from existing partitions, and its command."""

import json
from datetime import date, timedelta
from functools import partial

import pytest
from django.db import connection

from history.retention import catalog
from history.retention.capacity.loads import PACKED_SHARE, measure_loads
from tests.db import simulated
from tests.db.commands import read_output
from tests.db.partitioned import connect_plainly
from tests.messages import get_today

pytestmark = pytest.mark.usefixtures("tables")


def get_day_ago(number: int) -> date:
    return get_today() - timedelta(days=number)


capacity = partial(read_output, "capacity")


def test_rows_and_sizes_per_day_are_measured_from_finished_days() -> None:
    with connect_plainly() as plain:
        count = simulated.load_simulated_day(plain, get_day_ago(2), applications=60)
        count += simulated.load_simulated_day(plain, get_day_ago(1), applications=40, seed=2)
        simulated.load_simulated_day(plain, get_today(), applications=5, seed=3)
    parts = catalog.read_partitions(connection, simulated.TABLES)
    report = measure_loads(connection, parts, get_today())
    assert report is not None
    assert (report.since, report.until) == (get_day_ago(2), get_day_ago(1))
    assert [load.table for load in report.loads] == simulated.TABLES
    assert sum(load.rows_per_day for load in report.loads) * 2 == pytest.approx(count)
    on_disk = sum(2 * load.rows_per_day * (load.data + load.index) for load in report.loads)
    stored = sum(part.bytes for part in parts if part.day and part.day < get_today())
    assert on_disk == pytest.approx(stored, rel=1e-6)


def test_capacity_command_measures_existing_days() -> None:
    with connect_plainly() as plain:
        simulated.load_simulated_day(plain, get_day_ago(2), applications=60)
    short, long = (
        json.loads(capacity("--json", "--days", days, "--pack-after-days", "0"))
        for days in ("30", "90")
    )
    assert short["basis"].endswith(str(get_day_ago(2)))
    assert set(short["tables"]) == set(simulated.TABLES)
    assert long["total"]["data"] == pytest.approx(short["total"]["data"] * 91 / 31)
    assert str(get_day_ago(2)) in capacity()


def test_capacity_command_computes_from_options_when_there_are_no_partitions() -> None:
    words = ("--rps", "200", "--avg-bytes", "1785", "--days", "90")
    assert "17,280,000" in capacity(*words)
    parts = json.loads(capacity(*words, "--json"))["total"]
    assert parts["total"] == pytest.approx(parts["data"] + parts["index"] + parts["reserve"])


def test_packed_days_need_less_disk() -> None:
    words = ("--rps", "200", "--json")
    plain = json.loads(capacity(*words, "--pack-after-days", "0"))["total"]["total"]
    packed = json.loads(capacity(*words))["total"]["total"]
    assert packed == pytest.approx(plain * (4 + 87 * PACKED_SHARE) / 91)
