"""The metrics of the days and of maintain's runs."""

from datetime import UTC, datetime, timedelta

import pytest
from django.conf import settings
from django.db import connection
from prometheus_client.core import Metric

from annals import env
from annals.observe import metrics
from history.daily import days
from history.daily.canonical import Connection
from history.entities import BY_NAME
from history.models import DaySeal, VerifiedTable
from history.partitions.plan import SPARE_DAYS
from history.seals.seal import seal
from tests.db.noted import held
from tests.db.partitioned import TABLE, TABLES, insert, retire, run
from tests.messages import today

pytestmark = pytest.mark.usefixtures("tables")


def values(metrics: list[Metric]) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for metric in metrics
        for sample in metric.samples
    }


@pytest.fixture
def few_days(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"ANNALS_RETENTION_DAYS": "3", "ANNALS_AHEAD_DAYS": "2", "ANNALS_HOLD_DAYS": "7"}
    monkeypatch.setattr(settings, "ANNALS", env.read(given))


def test_the_partitions_of_every_table_are_counted(few_days: None, plain: Connection) -> None:
    for number in (-5, -4, 0):
        days.create(plain, TABLE, today() + timedelta(days=number))
    found = values(list(metrics.tables()))
    journal = 1
    assert len(found) == len(metrics.TABLES) * (len(TABLES) + journal)
    names = ("missing", "overdue")
    assert [found[f"annals_store_days_{name}", TABLE] for name in names] == [4 + SPARE_DAYS, 2]
    assert found["annals_store_days_missing", TABLES[1]] == 5 + SPARE_DAYS


@pytest.mark.parametrize("numbers, ahead", [((0, 1, 2), 2), ((0, 2), 0), ((0,), 0), ((1, 2), -1)])
def test_days_ahead_are_those_without_a_gap(
    few_days: None, numbers: tuple[int, ...], ahead: int, plain: Connection
) -> None:
    for number in numbers:
        days.create(plain, TABLE, today() + timedelta(days=number))
    found = values(list(metrics.tables()))
    assert found["annals_store_days_ahead", TABLE] == ahead


def test_the_latest_run_is_reported(few_days: None, plain: Connection) -> None:
    assert list(metrics.last_run()) == []
    days.create(plain, TABLE, today() - timedelta(days=5))
    message = held(day=today() - timedelta(days=5))
    retire()
    assert run("maintain")[0] == 1
    found = values(list(metrics.last_run()))
    assert (found["annals_maintain_held",], found["annals_maintain_exit_code",]) == (1, 1)
    message.delete()
    run("maintain")
    found = values(list(metrics.last_run()))
    assert found["annals_maintain_exit_code",] == 0
    assert found["annals_maintain_held",] == 0
    age = datetime.now(UTC).timestamp() - found["annals_maintain_timestamp_seconds",]
    assert 0 <= age < 300


def test_nothing_is_due_before_the_first_seal() -> None:
    assert values(list(metrics.verification())) == {}


def test_what_verify_found_is_reported_for_each_table(plain: Connection) -> None:
    old = today() - timedelta(days=5)
    days.create(plain, TABLE, old)
    insert(plain, datetime(old.year, old.month, old.day, 12, tzinfo=UTC), "a")
    made = seal(plain, BY_NAME["product-instance"], old)
    since, faults = "annals_verify_timestamp_seconds", "annals_verify_faults"
    assert values(list(metrics.verification())) == {(since, TABLE): made.sealed_at.timestamp()}
    assert run("verify", str(old))[0] == 0  # of one day only: the table waits for its check
    assert (faults, TABLE) not in values(list(metrics.verification()))
    assert run("verify")[0] == 0
    first = values(list(metrics.verification()))
    assert first[faults, TABLE] == 0
    assert first[since, TABLE] > made.sealed_at.timestamp()
    plain.execute(f"UPDATE {TABLE} SET author = 'x'")
    DaySeal.objects.update(digest="f" * 64)
    assert run("verify", "--entity", "product-car")[0] == 0
    assert values(list(metrics.verification()))[faults, TABLE] == 0
    assert run("verify")[0] == 1
    second = values(list(metrics.verification()))
    assert second[faults, TABLE] == 2  # the day and the chain
    assert second[since, TABLE] > first[since, TABLE]
    assert second[faults, TABLES[1]] == 0


def test_verify_without_the_right_to_write_checks_the_same() -> None:
    """As on a standby."""
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on")
        try:
            code, _, err = run("verify")
        finally:
            cursor.execute("RESET default_transaction_read_only")
    assert code == 0
    assert "the result is not recorded for the metrics" in err
    assert not VerifiedTable.objects.exists()
