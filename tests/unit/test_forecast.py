"""The forecast of losses is never later than the deletion by the brokers."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from history.retention.capacity.loads import TableLoad
from ingest.kafka.retention_forecast import (
    Backlog,
    PartitionLog,
    Retention,
    compute_catch_up,
    forecast_deletion,
)

HOUR = 3600.0
EIGHT_HOURS = Retention(8 * HOUR, None)
NOW = 100_000.0
LOG = PartitionLog(at=NOW, start=0, end=1_000_000, arriving=1000.0, message_bytes=1000.0)


@pytest.mark.parametrize(
    ("retention", "log", "seconds"),
    [
        (EIGHT_HOURS, LOG, 7 * HOUR),
        # 5 GB at 1 MB/s, of which 1 GB is there
        (Retention(None, 5_000_000_000), LOG, 4000.0),
        (Retention(8 * HOUR, 5_000_000_000), LOG, 4000.0),
        (Retention(HOUR / 2, 5_000_000_000), LOG, 0.0),
        (Retention(None, 1_000_000), LOG, 0.0),
        (Retention(None, None), LOG, None),
        (Retention(60.0, 1, deletes=False), LOG, None),
        # Without new messages or known sizes, only the time limit deletes messages.
        (Retention(2 * HOUR, 10**10), PartitionLog(NOW, 0, 1_000_000, 0.0, 1000.0), HOUR),
        (Retention(2 * HOUR, 10**10), PartitionLog(NOW, 0, 1_000_000, 1000.0), HOUR),
    ],
)
def test_forecast_of_deletion_respects_time_and_size_limits_of_the_topic(
    retention: Retention, log: PartitionLog, seconds: float | None
) -> None:
    """The oldest unread message is an hour old."""
    forecast = forecast_deletion(retention, log, 0, NOW - HOUR)
    assert (forecast.unread, forecast.deleted) == (1_000_000, 0)
    assert forecast.at == (None if seconds is None else pytest.approx(NOW + seconds))


@given(
    seconds=st.integers(1, 500),
    capacity=st.integers(1, 500),
    rate=st.integers(1, 10),
    written=st.integers(10, 3_000),
    share=st.floats(0, 0.99),
)
def test_broker_deletes_no_message_before_the_forecast_moment(
    seconds: int, capacity: int, rate: int, written: int, share: float
) -> None:
    """Messages of 10 bytes come at a steady rate. The broker deletes as early as the time and size
    limits allow."""
    next_offset = int(written * share)
    now = (written - 1) / rate
    log = PartitionLog(now, 0, written, float(rate), 10.0)
    forecast = forecast_deletion(
        Retention(float(seconds), capacity * 10), log, next_offset, next_offset / rate
    )
    too_old = next_offset / rate + seconds
    too_many = (next_offset + capacity) / rate
    assert forecast.at is not None
    assert forecast.at <= max(now, min(too_old, too_many)) + 2 / rate


def test_forecast_moment_is_now_when_broker_has_already_deleted_unread_messages() -> None:
    forecast = forecast_deletion(EIGHT_HOURS, PartitionLog(1000.0, 50, 60, 1.0), 20)
    assert (forecast.at, forecast.deleted, forecast.unread) == (1000.0, 30, 10)


@pytest.mark.parametrize(
    "missing",
    ["cleanup.policy", "retention.ms", "retention.bytes"],
)
def test_retention_is_unknown_when_topic_configuration_lacks_a_setting(missing: str) -> None:
    configuration = {
        "cleanup.policy": "compact, delete",
        "retention.ms": "60000",
        "retention.bytes": "-1",
    }
    assert Retention.from_configuration(configuration) == Retention(60.0, None, True)
    del configuration[missing]
    assert Retention.from_configuration(configuration) is None


BACKLOGS = st.dictionaries(
    st.integers(0, 9),
    st.builds(
        Backlog,
        st.integers(0, 1_000_000),
        st.floats(0, 100),
        st.one_of(st.floats(0, 100_000), st.just(inf)),
        st.one_of(st.floats(1, 100_000), st.just(inf)),
    ),
)


@given(BACKLOGS, st.floats(1, 100_000))
def test_time_to_catch_up_is_the_time_until_all_backlogs_are_read(
    backlogs: dict[int, Backlog], rate: float
) -> None:
    took = compute_catch_up(backlogs, rate)
    assert took.keys() == backlogs.keys()
    net = rate - sum(backlog.arriving for backlog in backlogs.values())
    total = sum(backlog.unread for backlog in backlogs.values())
    for place, backlog in backlogs.items():
        all_seconds = pytest.approx(total / net) if net > 0 else inf
        assert took[place] == (all_seconds if backlog.unread else 0.0)


def test_disk_estimate_counts_the_current_day_in_addition_to_retention() -> None:
    result = TableLoad("product_instance_aud", 1_000_000, 1_800, 80).compute_need(90, 0)
    assert result.data + result.index == pytest.approx(91 * 1_000_000 * 1_880)
    assert result.total == pytest.approx(1.2 * (result.data + result.index))
