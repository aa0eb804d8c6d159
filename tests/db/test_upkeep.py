"""The metrics of the days and of maintain's runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.conf import settings
from prometheus_client.core import Metric

from annals import env, upkeep
from history import days
from ingest.models import Quarantined
from tests.db.partitioned import TABLE, TABLES, raw, tables, transactional_db
from tests.db.test_partitions import run

__all__ = ["tables", "transactional_db"]
pytestmark = pytest.mark.usefixtures("tables")

TODAY = datetime.now(UTC).date()


def values(metrics: list[Metric]) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for metric in metrics
        for sample in metric.samples
    }


def test_days_are_told_for_every_table(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"ANNALS_RETENTION_DAYS": "3", "ANNALS_AHEAD_DAYS": "2", "ANNALS_HOLD_DAYS": "7"}
    monkeypatch.setattr(settings, "ANNALS", env.read(given))
    with raw() as plain:
        for number in (-5, -4, 0):
            days.create(plain, TABLE, TODAY + timedelta(days=number))
    Quarantined.objects.create(
        topic="top-storage.export.product-instance",
        topic_id="t",
        partition=0,
        offset=0,
        value=f'{{"updatedAt": "{TODAY - timedelta(days=5)}T12:00:00"}}'.encode(),
        first_seen=datetime.now(UTC),
    )
    found = values(list(upkeep.days()))
    assert len(found) == len(upkeep.DAYS) * len(TABLES)
    assert [found[f"annals_store_days_{name}", TABLE] for name in upkeep.DAYS] == [5, 1, 1, 0]
    assert found["annals_store_days_missing", TABLES[1]] == 6


def test_the_latest_run_is_told() -> None:
    assert list(upkeep.last_run()) == []
    run("maintain")
    found = values(list(upkeep.last_run()))
    assert found["annals_maintain_exit_code",] == 0
    assert found["annals_maintain_seconds",] > 0
    age = datetime.now(UTC).timestamp() - found["annals_maintain_timestamp_seconds",]
    assert 0 <= age < 300
