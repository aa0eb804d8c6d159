"""`partitions plan`, `maintain` and `list` on a real database."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import connection

from annals.configuration import env
from history.common import clock
from history.retention import runs
from history.retention.plan import SPARE_DAYS, build_plans
from history.retention.runs import StepResult, UnsealedDay, load_statuses
from history.store.days import day_locks, days
from history.store.days.canonical import Connection
from history.store.days.days import build_partition_name
from tests.db.commands import run_command
from tests.db.partitioned import (
    TABLE,
    TABLES,
    TODAY,
    connect_plainly,
    count_advisory_locks,
    count_stored,
    execute_plans,
    get_day,
    insert_version,
    list_partition_names,
    make_policy,
    retire_all_topics,
    run_partitions,
)

pytestmark = pytest.mark.usefixtures("tables")


# The days of the window that `small_window` sets.
DAYS = 3 + 1 + 2 + SPARE_DAYS


def build_names(numbers: Iterator[int] | range, table: str = TABLE) -> list[str]:
    return [build_partition_name(table, get_day(number)) for number in numbers]


@pytest.fixture
def small_window(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Set a window of 3 days back and 2 ahead.

    Return a function that changes the number of days of retention.
    """

    def set_retention(retention: str = "3") -> None:
        changed = env.read_settings({"ANNALS_RETENTION_DAYS": retention, "ANNALS_AHEAD_DAYS": "2"})
        monkeypatch.setattr(settings, "ANNALS", changed)

    set_retention()
    return set_retention


def test_maintain_creates_days_of_the_window_once() -> None:
    first = execute_plans(make_policy())
    assert len(first.created) == 6 * len(TABLES)
    for table in TABLES:
        assert list_partition_names(table) == build_names(range(-3, 3), table)
    assert execute_plans(make_policy()) == StepResult()


def test_adding_a_step_result_to_a_total_adds_every_field() -> None:
    step = StepResult(
        created=["created"],
        dropped=["dropped"],
        sealed=["sealed"],
        packed=["packed"],
        packing_waits="an earlier release is connected",
        unsealed=[UnsealedDay(TABLE, TODAY, "a message is unread")],
        held=["held"],
        busy=["busy"],
        broken=[("broken", "the error")],
        freed=1,
        longest_detach=2.0,
        search_keys_before=TODAY,
        search_keys_removed=3,
        quarantine_removed=4,
        logins_removed=5,
    )
    assert all(value != getattr(StepResult(), name) for name, value in vars(step).items())
    total = StepResult()
    total.add(step)
    total.add(StepResult())
    assert total == step


def test_partition_that_annals_did_not_create_is_kept_and_plan_says_why(plain: Connection) -> None:
    foreign = build_partition_name(TABLE, get_day(-30))
    plain.execute(
        f"CREATE TABLE {foreign} PARTITION OF {TABLE}"
        f" FOR VALUES FROM ('{get_day(-30)} 00:00+00') TO ('{get_day(-29)} 00:00+00')"
    )
    plain.execute(
        f"CREATE TABLE {TABLE}_march PARTITION OF {TABLE}"
        f" FOR VALUES FROM ('{get_day(1)} 00:00+00') TO ('{get_day(9)} 00:00+00')"
    )
    outcome = execute_plans(make_policy())
    assert outcome.exit_code == 0
    assert foreign in list_partition_names()
    assert build_names(range(1, 2))[0] not in list_partition_names()
    lines = [line for table in build_plans(make_policy()) for line in table.list_lines()]
    reasons = {line.partition.name: line.reason for line in lines}
    assert reasons[foreign] == "not made by Annals, never dropped"


def test_unattached_tables_with_names_like_partitions_are_not_changed(plain: Connection) -> None:
    lookalikes = [build_partition_name(TABLE, get_day(-50)), f"{TABLE}_backup", "other_20250101"]
    for name in lookalikes:
        plain.execute(f"CREATE TABLE {name} (LIKE {TABLE})")
    try:
        assert execute_plans(make_policy()).exit_code == 0
        for name in lookalikes:
            assert count_stored(plain, name) == 0
    finally:
        for name in lookalikes:
            plain.execute(f"DROP TABLE {name}")


def test_open_transaction_delays_dropping_of_days_but_not_their_creation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(day_locks, "LOCK_WAIT_S", 0.3)
    with connect_plainly() as plain:
        for number in (-5, -4):
            days.create_partition(plain, TABLE, get_day(number))
    with connect_plainly() as reader, reader.transaction():
        count_stored(reader)
        outcome = execute_plans(make_policy())
        assert outcome.busy == build_names(range(-5, -4))
        assert outcome.exit_code == 1
        assert set(build_names(range(-3, 3))) <= set(list_partition_names())
    assert execute_plans(make_policy()).dropped == build_names(range(-5, -3))


def test_failure_of_one_day_is_reported_and_does_not_stop_other_days(plain: Connection) -> None:
    name = build_partition_name(TABLE, TODAY)
    plain.execute(f"CREATE TABLE {name} (id text)")
    try:
        outcome = execute_plans(make_policy())
    finally:
        plain.execute(f"DROP TABLE {name}")
    assert [broken for broken, _ in outcome.broken] == [name]
    assert outcome.exit_code == 2
    assert len(outcome.created) == 6 * len(TABLES) - 1


def test_connection_lost_while_archiving_one_day_does_not_stop_other_days(
    plain: Connection,
) -> None:
    """PostgreSQL terminates the session that archives the day, as if a document had crashed it."""

    class FatalArchiver:
        def archive(self, plain: days.Connection, table: str, of: date) -> None:
            if (table, of) == (TABLE, get_day(-5)):
                plain.execute("SELECT pg_terminate_backend(pg_backend_pid())")

        def archive_rest(self, plain: days.Connection, table: str, of: date) -> None:
            """Do nothing: this test stores no rows after the call of `archive`."""

    for table in TABLES[:2]:
        for number in (-6, -5, -4):
            days.create_partition(plain, table, get_day(number))
    outcome = execute_plans(make_policy(), archiver=FatalArchiver())
    assert outcome.exit_code == 2
    [(name, reason)] = outcome.broken
    assert name == build_partition_name(TABLE, get_day(-5))
    assert "terminating connection" in reason
    dropped = build_names(iter((-6, -4))) + build_names(range(-6, -3), TABLES[1])
    assert outcome.dropped == dropped
    assert count_advisory_locks() == 0


def test_default_partition_with_rows_is_reported_with_remedy(plain: Connection) -> None:
    """After the commands in the report, the day has a partition with the rows."""
    plain.execute(f"CREATE TABLE product_default PARTITION OF {TABLE} DEFAULT")
    try:
        today = clock.now().date()
        insert_version(plain, clock.now())
        with pytest.raises(days.DefaultPartitionError) as caught:
            days.create_partition(plain, TABLE, today)
        message = str(caught.value)
        assert f"the default partition public.product_default of public.{TABLE} has rows" in message
        ran = run_command("partitions", "maintain")
        assert ran.code != 0
        assert "public.product_default" in ran.out + ran.err
        assert "SQLSTATE" not in ran.out + ran.err
        commands = re.findall(r"(?:ALTER TABLE|INSERT INTO) [^;,]*", message)
        plain.execute(commands[0])
        assert days.create_partition(plain, TABLE, today)
        plain.execute(commands[1])
        assert count_stored(plain, days.build_partition_name(TABLE, today)) == 1
    finally:
        plain.execute("DROP TABLE product_default")


def test_missing_table_is_reported(small_window: Any, plain: Connection) -> None:
    plain.execute("ALTER TABLE product_car_aud RENAME TO elsewhere")
    try:
        code, _, err = run_partitions("plan")
    finally:
        plain.execute("ALTER TABLE elsewhere RENAME TO product_car_aud")
    assert code == 2
    assert "no table product_car_aud" in err


@contextmanager
def _database_zone(zone: str) -> Iterator[None]:
    name = connection.settings_dict["NAME"]
    with connect_plainly() as plain:
        plain.execute(f"ALTER DATABASE \"{name}\" SET timezone = '{zone}'")
        try:
            yield
        finally:
            plain.execute(f'ALTER DATABASE "{name}" RESET timezone')


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "America/Los_Angeles"])
def test_days_are_utc_days_in_every_time_zone_of_the_server(zone: str) -> None:
    with _database_zone(zone), connect_plainly() as plain:
        assert plain.execute("SHOW timezone").fetchone() == (zone,)
        for number in range(-5, 3):
            days.create_partition(plain, TABLE, get_day(number))
        connection.close()
        outcome = execute_plans(make_policy())
        assert outcome.dropped == build_names(range(-5, -3))
        assert outcome.created[:1] != build_names(range(1))
        assert list_partition_names() == build_names(range(-3, 3))


def test_status_of_table_counts_days_ahead_missing_days_and_overdue_days(plain: Connection) -> None:
    for number in (-9, -1, 0, 1):
        days.create_partition(plain, TABLE, get_day(number))
    status = load_statuses(
        make_policy(find_held_days=lambda _: {(TABLE, get_day(-9)): "held"}, hold_days=9)
    )[0]
    assert (status.table, status.ahead, status.missing, status.overdue) == (TABLE, 1, 2, 0)
    assert status.bytes > 0
    assert load_statuses(make_policy())[1].ahead == -1


def test_days_are_reported_by_partitions_plan_and_by_maintain_and_by_list(
    small_window: Any,
) -> None:
    retire_all_topics()
    code, out, _ = run_partitions("plan", "--json")
    planned = json.loads(out)
    assert (code, planned["create"], planned["drop"]) == (0, DAYS * len(TABLES), 0)
    code, out, _ = run_partitions("maintain", "--dry-run")
    assert code == 0
    assert f"{DAYS * len(TABLES)} to create, 0 to drop" in out
    assert list_partition_names() == []
    code, out, _ = run_partitions("maintain")
    assert (code, out.startswith(f"Created {DAYS * len(TABLES)}, dropped 0")) == (0, True)
    listed = json.loads(run_partitions("list", "--json")[1])
    assert [part["name"] for part in listed if part["table"] == TABLE] == list_partition_names()
    today = datetime.now(UTC).date()
    todays_partition = next(part for part in listed if part["day"] == str(today))
    assert todays_partition["from"] == f"{today}T00:00:00+00:00"
    small_window("1")
    code, out, _ = run_partitions("maintain", "--json")
    result = json.loads(out)
    assert (code, len(result["dropped"]), result["exitCode"]) == (0, 2 * len(TABLES), 0)
    assert list_partition_names()[0] in run_partitions("list")[1]
    assert "inside the window" in run_partitions("plan", "--each")[1]


def test_later_maintain_run_replaces_one_that_a_fast_clock_dated_in_the_future(
    small_window: Any, set_clock: Callable[[datetime], None]
) -> None:
    """Otherwise alerts and the removal of search keys would use the run with the future date until
    that date comes."""
    now = clock.now().replace(hour=12)  # so that an hour later is still the same day
    for moment in (
        now,
        now + timedelta(days=300),
        now + timedelta(hours=1),
        now + timedelta(hours=2),
    ):
        set_clock(moment)
        outcome = run_partitions("maintain")
        assert outcome[0] == 0, outcome
        latest = runs.load_latest_run()
        assert latest is not None
        assert latest.started_at == moment
        assert latest.search_keys_before == (moment - timedelta(days=3)).date()


@pytest.mark.parametrize("wrong", [timedelta(days=1000), timedelta(hours=-2)])
def test_maintain_refuses_wrong_clock(
    small_window: Any, monkeypatch: pytest.MonkeyPatch, wrong: timedelta
) -> None:
    """If the clock were far ahead, maintain would drop every day."""
    run_partitions("maintain")
    names_before, right = list_partition_names(), clock.now()
    monkeypatch.setattr(clock, "now", lambda: right + wrong)
    code, _, err = run_partitions("maintain", "--force")
    assert (code, list_partition_names()) == (2, names_before)
    assert f"the clock of this machine says {right + wrong:%Y-%m-%d %H}" in err
    latest = runs.load_latest_run()
    assert latest is not None
    assert latest.exit_code == 2
    assert abs(latest.started_at - right) < timedelta(minutes=5)
    assert "`maintain` would do nothing" in run_partitions("plan")[2]
    monkeypatch.setattr(clock, "now", lambda: right + timedelta(minutes=1))
    assert run_partitions("maintain")[0] == 0
