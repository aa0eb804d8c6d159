"""The page that answers "is all well?", and what it is made of."""

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

from annals import env
from annals.metrics import REGISTER
from annals.operations import jobs
from annals.operations.disk import disk
from annals.operations.pace import HEIGHT, picture
from annals.operations.verdict import CHECKS, Beyond, Check, findings, values_of
from history.base import clock
from history.daily.days import DayState
from history.gap_models import GapRun
from history.models import MaintainRun
from history.partitions.catalog import Partition
from ingest.models import JobRun, Pace
from ingest.store import ledger
from ingest.store.session import open_connection
from tests.db.ingested import Ingested
from tests.db.noted import gaps_ran, ledger_row, maintain_ran
from tests.db.screens import text
from tests.messages import value

RULES = Path(__file__).parents[2] / "docker/prometheus/rules.yaml"
RUNBOOK = Path(__file__).parents[2] / "docs/runbook.md"
TOPIC = "top-storage.export.product-instance"
PLACE = {"topic": TOPIC, "partition": "2"}


def gauge(name: str, value: float, **labels: str) -> Metric:
    made = GaugeMetricFamily(name, "", labels=list(labels))
    made.add_metric(list(labels.values()), value)
    return made


OLD = gauge("annals_loss_seconds", 90_000, **PLACE), gauge("annals_kept_seconds", 1e5, **PLACE)
# By alert: samples at which it fires, and what its rule says of the first. The other checks are a
# Beyond, which says both.
FIRING: dict[str, tuple[list[Metric], str]] = {
    "AnnalsLossNear": (
        [gauge("annals_loss_seconds", 7199, **PLACE), gauge("annals_kept_seconds", 9e9, **PLACE)],
        "< 7200",
    ),
    "AnnalsCatchUpTooSlow": ([gauge("annals_catch_up_seconds", 90_001, **PLACE), *OLD], "> min"),
    "AnnalsConsumerSilent": ([gauge("annals_store_seen_timestamp_seconds", 1, **PLACE)], "> 300"),
    "AnnalsBrokersSilent": (
        [gauge("annals_store_end_known_timestamp_seconds", 1, **PLACE)],
        "> 300",
    ),
    "AnnalsNothingRead": (
        [
            gauge("annals_store_read_timestamp_seconds", 1, **PLACE),
            gauge("annals_store_lag", 1, **PLACE),
            *OLD,
        ],
        "> 900",
    ),
    "AnnalsDaysNotPacked": ([gauge("annals_store_days_to_pack", 1, table="t")], "> 0"),
    "AnnalsQuarantine": (
        [gauge("annals_store_quarantine", 1, status="new", reason="not_json")],
        "> 0",
    ),
    "AnnalsManyOpened": ([gauge("annals_journal_most_opened", 201, actor="person")], "> 200"),
}
NEXT = {"==": 0, ">": 1, "<": -1}


def firing(check: Check) -> tuple[list[Metric], str]:
    if not isinstance(check.found, Beyond):
        return FIRING[check.alert]
    name, sign, limit = check.found.name, check.found.sign, check.found.limit
    return [gauge(name, limit + NEXT[sign])], f"{sign} {limit}"


def rules() -> dict[str, dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def test_every_check_is_an_alert_with_its_limit_and_severity() -> None:
    for check in CHECKS:
        rule = rules()[check.alert]
        metrics, limit = firing(check)
        assert metrics[0].name in rule["expr"]
        assert limit in " ".join(rule["expr"].split()), check.alert
        assert check.page is (rule["labels"]["severity"] == "page"), check.alert
        assert [each.alert for each in findings(values_of(metrics), ())] == [check.alert]
    for alert, late in jobs.LATE.items():
        assert f"### {alert}\n" in RUNBOOK.read_text()
        if alert != "AnnalsQuarantine":
            assert f"> {late.total_seconds():.0f}" in rules()[alert]["expr"]


def test_every_other_alert_needs_the_past_or_another_process() -> None:
    checked = {*(check.alert for check in CHECKS), *jobs.LATE}
    ours = "|".join(map(re.escape, REGISTER.described))
    asked = {
        alert
        for alert, rule in rules().items()
        if re.search(rf"\b({ours})\b", rule["expr"])
        and not re.search(r"\[\w+(:\w+)?\]| offset ", rule["expr"])
    }
    assert len(asked) > 20
    assert asked - checked == set()


def test_the_worst_is_first_and_a_place_is_named(settings: Settings) -> None:
    halted = gauge("annals_store_halted", 1, **PLACE)
    found = findings(values_of([*FIRING["AnnalsQuarantine"][0], halted]), ())
    assert [each.alert for each in found] == ["AnnalsHalted", "AnnalsQuarantine"]
    assert list(found[0].where) == [f"{TOPIC}[2]"]
    assert found[0].runbook == ""
    settings.ANNALS = env.read({"ANNALS_RUNBOOK_URL": "https://bank.example/runbook.md"})
    assert found[0].runbook == "https://bank.example/runbook.md#annalshalted"


@pytest.mark.parametrize(
    ("seen", "known", "alert", "page"),
    [
        (55, 65, None, False),  # asked last before it ended
        (65, 75, "AnnalsConsumerSilent", False),
        (301, 999, "AnnalsConsumerSilent", True),
        (2, 65, "AnnalsBrokersSilent", False),
        (35, 301, "AnnalsBrokersSilent", True),
    ],
)
def test_who_is_silent_and_since_when(seen: int, known: int, alert: str | None, page: bool) -> None:
    """Seconds. Of a minute at first, and of five that wake somebody."""
    now = clock.now()
    given = [
        gauge(
            f"annals_store_{name}_timestamp_seconds", now.timestamp() - age - n, t=TOPIC, n=str(n)
        )
        for name, age in (("seen", seen), ("end_known", known))
        for n in (2, 3)
    ]
    found = findings(values_of(given), ())
    assert [(each.alert, each.page) for each in found] == ([(alert, page)] if alert else [])
    since = now - timedelta(seconds=2 + (seen if alert == "AnnalsConsumerSilent" else known))
    assert all(f"{since:%Y-%m-%dT%H:%M:%S}" in each.where[0] for each in found)


def test_what_came_after_maintain_was_done_waits_for_its_next_run() -> None:
    for code, said in ((0, []), (1, ["AnnalsDaysNotPacked"])):
        given = [*FIRING["AnnalsDaysNotPacked"][0], gauge("annals_maintain_exit_code", code)]
        assert [each.alert for each in findings(values_of(given), ())] == said


def test_a_job_that_did_not_run_is_not_well(db: None) -> None:
    def late() -> set[str]:
        return {job.command for job in jobs.jobs() if job.late}

    every = {"annals partitions maintain", "annals quarantine retry", "annals gaps"}
    assert late() == every
    now = clock.now()
    ran(now)
    assert late() == set()
    GapRun.objects.update(started_at=now - timedelta(hours=5))
    assert late() == {"annals gaps"}
    assert [each.alert for each in findings(values_of(()), jobs.jobs())] == ["AnnalsGapsUnknown"]
    MaintainRun.objects.update(exit_code=2)
    assert {each.alert for each in findings(values_of(()), jobs.jobs())} == {
        "AnnalsGapsUnknown",
        "AnnalsMaintainFails",
    }


def ran(now: Any) -> None:
    maintain_ran(now)
    gaps_ran(now)
    JobRun.objects.create(name=JobRun.RETRY, started_at=now, outcome="stored 2")


@pytest.fixture
def ops(db: None, client: Client) -> Client:
    client.force_login(User.objects.get(username="ops"))
    return client


def test_it_is_the_first_page_of_operators_and_of_nobody_else(ops: Client) -> None:
    assert 'class="verdict' in ops.get("/admin/").content.decode()
    for login in ("support", "admin"):
        ops.force_login(User.objects.get(username=login))
        assert 'class="verdict' not in ops.get("/admin/").content.decode()


def test_all_is_well_in_words(ops: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    ran(clock.now())
    monkeypatch.setattr("annals.operations.screen.metrics.STORE.collect", lambda: iter(()))
    page = text(ops.get("/admin/operations/"))
    assert "Всё хорошо" in page
    assert "сохранено: 2" in page
    JobRun.objects.all().delete()
    page = text(ops.get("/admin/operations/"))
    assert "Всё хорошо" not in page
    assert "annals quarantine retry" in page
    assert "не запускалось ни разу" in page


def test_the_page_says_what_is_wrong_with_the_store(ops: Client) -> None:
    old = clock.now() - timedelta(minutes=9)
    ledger_row(partition=2, checked_at=old, halted_at=old, halted_why="20 bad messages in a row")
    answer = ops.get("/admin/operations/")
    page = text(answer)
    assert "Действуйте немедленно, даже ночью" in page
    assert "AnnalsHalted" in page
    assert "плохих сообщений подряд: 20" in page
    assert "/admin/completeness/" in answer.content.decode()


@pytest.mark.parametrize(
    "forecasts, said",
    [
        ([], "The brokers have not said how long they keep unread messages."),
        ([None], "The brokers have not said how long they keep unread messages."),
        ([(None, None)], "The brokers never delete unread messages."),
        ([(None, None), None], "The brokers have not said how long they keep unread messages."),
        ([(timedelta(hours=2), 9e9), (None, None)], "if nothing more is read from now on"),
    ],
)
def test_the_page_says_whether_the_brokers_delete_messages(
    forecasts: list[tuple[timedelta | None, float | None] | None], said: str, ops: Client
) -> None:
    now = clock.now()
    for partition, forecast in enumerate(forecasts):
        loss, kept = forecast or (None, None)
        ledger_row(
            partition=partition,
            forecast_at=now if forecast else None,
            loss_at=now + loss if loss else None,
            kept_seconds=kept,
        )
    ops.cookies["django_language"] = "en"
    assert said in text(ops.get("/admin/operations/"))


def test_rates_are_of_what_the_consumer_noted(ingested: Ingested) -> None:
    assert picture() is None
    ingested.write(*(value(id=str(number)) for number in range(5)))
    with open_connection() as plain:
        for _ in range(2):  # of ten minutes the first counts
            ledger.record_pace(plain)
        noted = Pace.objects.get()
        assert (noted.came, noted.read, noted.stored) == (5, 5, 5)
        plain.execute(
            "UPDATE ingest_pace SET at = at - interval '10 min', slot = slot - 1, read = 2"
        )
        ledger.record_pace(plain)
        found = picture()
        assert found is not None
        assert (found.came, found.read, found.before) == (0, 3, 3)
        assert found.most == pytest.approx(3 / 600, rel=0.1)
        assert f" {HEIGHT}v-0.0h5.0V{HEIGHT}z" in found.came_path
        assert re.fullmatch(r"M71[45]\.\d -?0\.0h5\.0", found.read_path)
        plain.execute("UPDATE ingest_pace SET at = at - interval '2 days'")
    assert picture() is None


def test_the_day_on_which_the_disk_is_full(db: None, settings: Settings) -> None:
    assert disk([]).full is None
    from annals.operations import disk as module

    class Load:
        rows_per_day, data, index = 1e9, 9.0, 1.0

    class Found:
        loads = [Load()]

    today = clock.now().date()
    part = Partition("t", "t_1", None, None, DayState.ATTACHED, False, 1, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "measured", lambda *_: Found())
        settings.ANNALS = env.read({"ANNALS_DISK_GB": "100", "ANNALS_RETENTION_DAYS": "30"})
        found = disk([part])
        assert found.a_day == 10**10
        assert found.full == today + timedelta(days=(10**11 - found.used) // 10**10)
        for day, page in ((found.full, False), (today, True)):
            [one] = findings(values_of(()), (), day)
            assert (one.alert, one.page, one.where) == ("AnnalsDiskFills", page, [str(day)])
        settings.ANNALS = env.read({"ANNALS_DISK_GB": "400", "ANNALS_RETENTION_DAYS": "30"})
        assert disk([part]).full is None
