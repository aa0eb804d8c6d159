"""The metrics of days and of maintain runs."""

from datetime import UTC, datetime, timedelta

import pytest
from django.conf import settings
from django.db import connection
from prometheus_client.core import Metric

from annals.configuration import env
from annals.operations import metrics_page
from history.kinds.entities import BY_NAME
from history.models import DaySeal, VerifiedTable
from history.retention.plan import SPARE_DAYS
from history.retention.seals.seal import seal_day
from history.store.days import days
from history.store.days.canonical import Connection
from tests.db.ingest_rows import create_quarantined
from tests.db.partitioned import TABLE, TABLES, insert_version, retire_all_topics, run_partitions
from tests.messages import get_today

pytestmark = pytest.mark.usefixtures("tables")


def get_values(metrics: list[Metric]) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for metric in metrics
        for sample in metric.samples
    }


@pytest.fixture
def few_days(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"ANNALS_RETENTION_DAYS": "3", "ANNALS_AHEAD_DAYS": "2", "ANNALS_HOLD_DAYS": "7"}
    monkeypatch.setattr(settings, "ANNALS", env.read_settings(values))


def test_day_metrics_count_missing_and_overdue_days_of_each_table(
    few_days: None, plain: Connection
) -> None:
    for number in (-5, -4, 0):
        days.create_partition(plain, TABLE, get_today() + timedelta(days=number))
    actual = get_values(list(metrics_page.measure_tables()))
    journal = 1
    assert len(actual) == len(metrics_page.TABLE_METRICS) * (len(TABLES) + journal)
    names = ("missing", "overdue")
    assert [actual[f"annals_store_days_{name}", TABLE] for name in names] == [4 + SPARE_DAYS, 2]
    assert actual["annals_store_days_missing", TABLES[1]] == 5 + SPARE_DAYS


@pytest.mark.parametrize("numbers, ahead", [((0, 1, 2), 2), ((0, 2), 0), ((0,), 0), ((1, 2), -1)])
def test_metric_of_days_ahead_counts_only_to_first_missing_day(
    few_days: None, numbers: tuple[int, ...], ahead: int, plain: Connection
) -> None:
    for number in numbers:
        days.create_partition(plain, TABLE, get_today() + timedelta(days=number))
    actual = get_values(list(metrics_page.measure_tables()))
    assert actual["annals_store_days_ahead", TABLE] == ahead


def test_maintain_metrics_report_the_latest_run(few_days: None, plain: Connection) -> None:
    assert list(metrics_page.report_last_run()) == []
    days.create_partition(plain, TABLE, get_today() - timedelta(days=5))
    message = create_quarantined(day=get_today() - timedelta(days=5))
    retire_all_topics()
    assert run_partitions("maintain")[0] == 1
    actual = get_values(list(metrics_page.report_last_run()))
    assert (actual["annals_maintain_held",], actual["annals_maintain_exit_code",]) == (1, 1)
    message.delete()
    run_partitions("maintain")
    actual = get_values(list(metrics_page.report_last_run()))
    assert actual["annals_maintain_exit_code",] == 0
    assert actual["annals_maintain_held",] == 0
    age = datetime.now(UTC).timestamp() - actual["annals_maintain_timestamp_seconds",]
    assert 0 <= age < 300


def test_verification_metrics_are_absent_before_first_seal() -> None:
    assert get_values(list(metrics_page.report_verification())) == {}


def test_verification_metrics_are_reported_for_each_table(plain: Connection) -> None:
    old = get_today() - timedelta(days=5)
    days.create_partition(plain, TABLE, old)
    insert_version(plain, datetime(old.year, old.month, old.day, 12, tzinfo=UTC), "a")
    created = seal_day(plain, BY_NAME["product-instance"], old)
    since, faults = "annals_verify_timestamp_seconds", "annals_verify_faults"
    assert get_values(list(metrics_page.report_verification())) == {
        (since, TABLE): created.sealed_at.timestamp()
    }
    # A run that checks a single day does not report faults of the table.
    assert run_partitions("verify", str(old))[0] == 0
    assert (faults, TABLE) not in get_values(list(metrics_page.report_verification()))
    assert run_partitions("verify")[0] == 0
    first = get_values(list(metrics_page.report_verification()))
    assert first[faults, TABLE] == 0
    assert first[since, TABLE] > created.sealed_at.timestamp()
    plain.execute(f"UPDATE {TABLE} SET author = 'x'")
    DaySeal.objects.update(digest="f" * 64)
    assert run_partitions("verify", "--entity", "product-car")[0] == 0
    assert get_values(list(metrics_page.report_verification()))[faults, TABLE] == 0
    assert run_partitions("verify")[0] == 1
    second = get_values(list(metrics_page.report_verification()))
    assert second[faults, TABLE] == 2  # one fault in the day, one in the chain of seals
    assert second[since, TABLE] > first[since, TABLE]
    assert second[faults, TABLES[1]] == 0


def test_verify_checks_days_when_database_is_read_only() -> None:
    """A standby is read-only."""
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on")
        try:
            code, _, err = run_partitions("verify")
        finally:
            cursor.execute("RESET default_transaction_read_only")
    assert code == 0
    assert "the result is not recorded for the metrics" in err
    assert not VerifiedTable.objects.exists()
