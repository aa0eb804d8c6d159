"""The page that answers "is all well?": its checks, its chart and its forecast."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.contrib.auth.models import User
from django.test import Client
from prometheus_client.core import GaugeMetricFamily, Metric
from pytest_django import Settings

from annals.configuration import env
from annals.metrics import REGISTER
from annals.operations import jobs
from annals.operations.alert_checks import (
    CHECKS,
    Alert,
    Threshold,
    collect_values,
    find_problems,
)
from annals.operations.disk import forecast_disk
from annals.operations.pace_picture import HEIGHT, draw_pace
from history.common import clock
from history.models import GapRun, MaintainRun
from history.retention.catalog import Partition
from history.store.days.days import DayState
from ingest.models import JobRun, Pace
from ingest.store import ledger
from ingest.store.session import open_connection
from tests.db.ingest_rows import create_ledger_row, record_gap_run, record_maintain_run
from tests.db.ingested import Ingested
from tests.db.screens import read_text
from tests.messages import make_value

RULES = Path(__file__).parents[2] / "docker/prometheus/rules.yaml"
RUNBOOK = Path(__file__).parents[2] / "docs/runbook.md"
TOPIC = "top-storage.export.product-instance"
PLACE = {"topic": TOPIC, "partition": "2"}


def make_gauge(name: str, value: float, **labels: str) -> Metric:
    created = GaugeMetricFamily(name, "", labels=list(labels))
    created.add_metric(list(labels.values()), value)
    return created


OLD = (
    make_gauge("annals_loss_seconds", 90_000, **PLACE),
    make_gauge("annals_kept_seconds", 1e5, **PLACE),
)
# For each alert: samples at which it fires, and the limit of the first one in its rule. The other
# checks are Thresholds, which have both.
FIRING: dict[str, tuple[list[Metric], str]] = {
    "AnnalsLossNear": (
        [
            make_gauge("annals_loss_seconds", 7199, **PLACE),
            make_gauge("annals_kept_seconds", 9e9, **PLACE),
        ],
        "< 7200",
    ),
    "AnnalsCatchUpTooSlow": (
        [make_gauge("annals_catch_up_seconds", 90_001, **PLACE), *OLD],
        "> min",
    ),
    "AnnalsConsumerSilent": (
        [make_gauge("annals_store_seen_timestamp_seconds", 1, **PLACE)],
        "> 300",
    ),
    "AnnalsBrokersSilent": (
        [make_gauge("annals_store_end_known_timestamp_seconds", 1, **PLACE)],
        "> 300",
    ),
    "AnnalsNothingRead": (
        [
            make_gauge("annals_store_read_timestamp_seconds", 1, **PLACE),
            make_gauge("annals_store_lag", 1, **PLACE),
            *OLD,
        ],
        "> 900",
    ),
    "AnnalsDaysNotPacked": ([make_gauge("annals_store_days_to_pack", 1, table="t")], "> 0"),
    "AnnalsQuarantine": (
        [make_gauge("annals_store_quarantine", 1, status="new", reason="not_json")],
        "> 0",
    ),
    "AnnalsManyOpened": ([make_gauge("annals_journal_most_opened", 201, actor="person")], "> 200"),
}
NEXT = {"==": 0, ">": 1, "<": -1}


def make_firing_samples(check: Alert) -> tuple[list[Metric], str]:
    if not isinstance(check.find_affected, Threshold):
        return FIRING[check.alert]
    name, sign, limit = (
        check.find_affected.name,
        check.find_affected.sign,
        check.find_affected.limit,
    )
    return [make_gauge(name, limit + NEXT[sign])], f"{sign} {limit}"


def load_rules() -> dict[str, dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def test_each_check_has_same_limit_and_severity_as_its_alert_rule() -> None:
    for check in CHECKS:
        rule = load_rules()[check.alert]
        metrics, limit = make_firing_samples(check)
        assert metrics[0].name in rule["expr"]
        assert limit in " ".join(rule["expr"].split()), check.alert
        assert check.page is (rule["labels"]["severity"] == "page"), check.alert
        assert [problem.alert for problem in find_problems(collect_values(metrics), ())] == [
            check.alert
        ]
    for alert, late in jobs.LATE_AFTER.items():
        assert f"### {alert}\n" in RUNBOOK.read_text()
        if alert != "AnnalsQuarantine":
            assert f"> {late.total_seconds():.0f}" in load_rules()[alert]["expr"]


def test_operations_page_has_check_for_every_alert_rule_without_time_range() -> None:
    """A rule with a time range or an offset needs earlier values, which the page does not have."""
    checked = {*(check.alert for check in CHECKS), *jobs.LATE_AFTER}
    local_rows = "|".join(map(re.escape, REGISTER.descriptions))
    requested = {
        alert
        for alert, rule in load_rules().items()
        if re.search(rf"\b({local_rows})\b", rule["expr"])
        and not re.search(r"\[\w+(:\w+)?\]| offset ", rule["expr"])
    }
    assert len(requested) > 20
    assert requested - checked == set()


def test_problems_are_listed_worst_first_and_name_affected_partitions(settings: Settings) -> None:
    halted = make_gauge("annals_store_halted", 1, **PLACE)
    actual = find_problems(collect_values([*FIRING["AnnalsQuarantine"][0], halted]), ())
    assert [item.alert for item in actual] == ["AnnalsHalted", "AnnalsQuarantine"]
    assert list(actual[0].affected) == [f"{TOPIC}[2]"]
    assert actual[0].runbook == ""
    settings.ANNALS = env.read_settings({"ANNALS_RUNBOOK_URL": "https://bank.example/runbook.md"})
    assert actual[0].runbook == "https://bank.example/runbook.md#annalshalted"


@pytest.mark.parametrize(
    ("consumer_age", "broker_age", "alert", "page"),
    [
        (55, 65, None, False),  # the brokers were asked shortly before the consumer ended
        (65, 75, "AnnalsConsumerSilent", False),
        (301, 999, "AnnalsConsumerSilent", True),
        (2, 65, "AnnalsBrokersSilent", False),
        (35, 301, "AnnalsBrokersSilent", True),
    ],
)
def test_silent_consumers_and_silent_brokers_are_different_problems(
    consumer_age: int, broker_age: int, alert: str | None, page: bool
) -> None:
    """A consumer wrote `consumer_age` seconds ago. The brokers confirmed the end offsets
    `broker_age` seconds ago. Silence is a problem after one minute, and has the severity `page`
    after five minutes."""
    now = clock.now()
    values = [
        make_gauge(
            f"annals_store_{name}_timestamp_seconds", now.timestamp() - age - n, t=TOPIC, n=str(n)
        )
        for name, age in (("seen", consumer_age), ("end_known", broker_age))
        for n in (2, 3)
    ]
    actual = find_problems(collect_values(values), ())
    assert [(item.alert, item.page) for item in actual] == ([(alert, page)] if alert else [])
    since = now - timedelta(
        seconds=2 + (consumer_age if alert == "AnnalsConsumerSilent" else broker_age)
    )
    assert all(f"{since:%Y-%m-%dT%H:%M:%S}" in entry.affected[0] for entry in actual)


def test_unpacked_days_are_reported_only_when_latest_maintain_run_left_work_undone() -> None:
    for code, message in ((0, []), (1, ["AnnalsDaysNotPacked"])):
        values = [*FIRING["AnnalsDaysNotPacked"][0], make_gauge("annals_maintain_exit_code", code)]
        assert [problem.alert for problem in find_problems(collect_values(values), ())] == message


def test_late_cron_job_is_reported_as_problem(db: None) -> None:
    def list_late_commands() -> set[str]:
        return {job.command for job in jobs.list_jobs() if job.late}

    every = {"annals partitions maintain", "annals quarantine retry", "annals gaps"}
    assert list_late_commands() == every
    now = clock.now()
    record_retry_run(now)
    assert list_late_commands() == set()
    GapRun.objects.update(started_at=now - timedelta(hours=5))
    assert list_late_commands() == {"annals gaps"}
    assert [problem.alert for problem in find_problems(collect_values(()), jobs.list_jobs())] == [
        "AnnalsGapsUnknown"
    ]
    MaintainRun.objects.update(exit_code=2)
    assert {item.alert for item in find_problems(collect_values(()), jobs.list_jobs())} == {
        "AnnalsGapsUnknown",
        "AnnalsMaintainFails",
    }


def record_retry_run(now: Any) -> None:
    record_maintain_run(now)
    record_gap_run(now)
    JobRun.objects.create(name=JobRun.RETRY, started_at=now, outcome="stored 2")


@pytest.fixture
def operator(db: None, client: Client) -> Client:
    client.force_login(User.objects.get(username="ops"))
    return client


def test_operations_page_is_start_page_of_operators_only(operator: Client) -> None:
    assert 'class="verdict' in operator.get("/admin/").content.decode()
    for login in ("support", "admin"):
        operator.force_login(User.objects.get(username=login))
        assert 'class="verdict' not in operator.get("/admin/").content.decode()


def test_operations_page_says_when_all_is_well(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_retry_run(clock.now())
    monkeypatch.setattr(
        "annals.operations.screen.metrics_page.STORE_COLLECTOR.collect", lambda: iter(())
    )
    page = read_text(operator.get("/admin/operations/"))
    assert "All is well" in page
    assert "stored: 2" in page
    JobRun.objects.all().delete()
    page = read_text(operator.get("/admin/operations/"))
    assert "All is well" not in page
    assert "annals quarantine retry" in page
    assert "has never run" in page


def test_operations_page_lists_problems_of_store(operator: Client) -> None:
    old = clock.now() - timedelta(minutes=9)
    create_ledger_row(
        partition=2, checked_at=old, halted_at=old, halted_why="20 bad messages in a row"
    )
    answer = operator.get("/admin/operations/")
    page = read_text(answer)
    assert "Act now, also at night" in page
    assert "AnnalsHalted" in page
    assert "20 bad messages in a row" in page
    assert "/admin/completeness/" in answer.content.decode()


@pytest.mark.parametrize(
    "forecasts, message",
    [
        ([], "The brokers have not said how long they keep unread messages."),
        ([None], "The brokers have not said how long they keep unread messages."),
        ([(None, None)], "The brokers never delete unread messages."),
        ([(None, None), None], "The brokers have not said how long they keep unread messages."),
        ([(timedelta(hours=2), 9e9), (None, None)], "if nothing more is read from now on"),
    ],
)
def test_operations_page_says_whether_brokers_delete_messages(
    forecasts: list[tuple[timedelta | None, float | None] | None], message: str, operator: Client
) -> None:
    now = clock.now()
    for partition, forecast in enumerate(forecasts):
        loss, remaining = forecast or (None, None)
        create_ledger_row(
            partition=partition,
            forecast_at=now if forecast else None,
            loss_at=now + loss if loss else None,
            kept_seconds=remaining,
        )
    operator.cookies["django_language"] = "en"
    assert message in read_text(operator.get("/admin/operations/"))


def test_pace_chart_shows_recorded_numbers_of_read_messages(ingested: Ingested) -> None:
    assert draw_pace() is None
    ingested.write(*(make_value(id=str(number)) for number in range(5)))
    with open_connection() as plain:
        for _ in range(2):  # only the first call in ten minutes is recorded
            ledger.record_pace(plain)
        pace = Pace.objects.get()
        assert (pace.came, pace.read, pace.stored) == (5, 5, 5)
        plain.execute(
            "UPDATE ingest_pace SET at = %s, slot = slot - 1, read = 2",
            [pace.at - timedelta(minutes=10)],
        )
        ledger.record_pace(plain)
        actual = draw_pace()
        assert actual is not None
        assert (actual.arrived, actual.read, actual.before) == (0, 3, 3)
        assert actual.highest_rate == pytest.approx(3 / 600, rel=0.1)
        assert f" {HEIGHT}v-0.0h5.0V{HEIGHT}z" in actual.arrived_path
        assert re.fullmatch(r"M71[45]\.\d -?0\.0h5\.0", actual.read_path)
        plain.execute("UPDATE ingest_pace SET at = %s", [pace.at - timedelta(days=2)])
    assert draw_pace() is None


def test_forecast_says_on_which_day_the_disk_is_full(db: None, settings: Settings) -> None:
    assert forecast_disk([]).full is None
    from annals.operations import disk as module

    class FakeLoad:
        rows_per_day, data, index = 1e9, 9.0, 1.0

    class FakeLoads:
        loads = [FakeLoad()]

    today = clock.now().date()
    part = Partition("t", "t_1", None, None, DayState.ATTACHED, False, 1, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "measure_loads", lambda *_: FakeLoads())
        settings.ANNALS = env.read_settings(
            {"ANNALS_DISK_GB": "100", "ANNALS_RETENTION_DAYS": "30"}
        )
        actual = forecast_disk([part])
        assert actual.a_day == 10**10
        assert actual.full == today + timedelta(days=(10**11 - actual.used) // 10**10)
        for day, page in ((actual.full, False), (today, True)):
            [first] = find_problems(collect_values(()), (), day)
            assert (first.alert, first.page, first.affected) == (
                "AnnalsDiskFills",
                page,
                [str(day)],
            )
        settings.ANNALS = env.read_settings(
            {"ANNALS_DISK_GB": "400", "ANNALS_RETENTION_DAYS": "30"}
        )
        assert forecast_disk([part]).full is None
