"""A day with unresolved or unread messages is held for some days, and the reason is shown."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from history.kinds.entities import BY_NAME
from history.retention.plan import build_plans
from history.store.days import days
from ingest.completeness.holds import find_days_to_hold, find_unsettled_days
from ingest.messages.identity import guess_day
from ingest.models import Ledger, Quarantined, RetiredTopic
from tests.db.ingest_rows import create_ledger_row, create_quarantined
from tests.db.partitioned import (
    NOW,
    TABLE,
    connect_plainly,
    execute_plans,
    get_day,
    leave_half_dropped,
    make_policy,
)

pytestmark = pytest.mark.usefixtures("tables")

TOPIC, MIGRATION = BY_NAME["product-instance"].topics
OTHER = BY_NAME["product-car"].topics[0]
OLD = [(TABLE, get_day(-5)), (TABLE, get_day(-4))]


@pytest.fixture(autouse=True)
def old_days(tables: None) -> None:
    with connect_plainly() as plain:
        for table, of in OLD:
            days.create_partition(plain, table, of)


def create_bad_message(value: bytes, offset: int = 0, **fields: Any) -> Quarantined:
    return create_quarantined(
        offset=offset, value=value, day=guess_day(value), **{"timestamp": NOW, **fields}
    )


def add_ledger_row(**fields: Any) -> Ledger:
    return create_ledger_row(**{"stored": fields.get("read", 10), **fields})


def find_holds(hold_days: int = 7) -> dict[date, str]:
    table = build_plans(make_policy(find_held_days=find_unsettled_days, hold_days=hold_days))[0]
    return dict(table.strategy.held_days)


def test_no_day_is_held_without_open_messages() -> None:
    add_ledger_row()
    create_bad_message(b"{}", status=Quarantined.Status.DISCARDED)
    create_bad_message(b"{}", 1, status=Quarantined.Status.RESOLVED)
    assert find_holds() == {}
    assert execute_plans(make_policy(find_held_days=find_unsettled_days, hold_days=7)).dropped == [
        days.build_partition_name(table, day) for table, day in OLD
    ]


@pytest.mark.parametrize("status", ["new", "retrying", "failed"])
def test_quarantined_message_holds_its_day(status: str) -> None:
    create_bad_message(
        f'{{"id": 7, "updatedAt" : "{get_day(-5)}T23:00:00.123456789"}}'.encode(), status=status
    )
    assert find_holds() == {get_day(-5): "1 unresolved in quarantine"}


def test_held_day_is_utc_day_of_the_moment_whatever_its_time_zone() -> None:
    create_bad_message(f'{{"updatedAt":"{get_day(-4)}T01:30:00+03:00"}}'.encode())
    assert list(find_holds()) == [get_day(-5)]


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff\x00\xfe",
        b'{"updatedAt":"yesterday..."}',
        b'{"updatedAt":"0001-01-01T00:00:00+14:00"}',
        b'{"updatedAt":"9999-12-31T23:59:59-14:00"}',
    ],
)
def test_quarantined_message_without_readable_moment_holds_day_of_its_kafka_timestamp(
    value: bytes,
) -> None:
    sent = NOW - timedelta(days=4)
    create_bad_message(value, timestamp=sent)
    create_bad_message(value, 1, topic=OTHER, timestamp=sent)
    assert list(find_holds()) == [get_day(-4)]


def test_ledger_with_wrong_sums_holds_all_old_days() -> None:
    add_ledger_row(stored=9)
    assert find_holds() == {of: f"the ledger of {TOPIC}[0] does not add up" for _, of in OLD}


def test_unread_messages_hold_the_day_of_the_newest_read_message_and_all_later_days() -> None:
    seen = timezone.now()
    ledger = add_ledger_row(
        high_watermark=25, newest_timestamp=NOW - timedelta(days=4), end_known_at=seen
    )
    assert find_holds() == {get_day(-4): f"15 messages of {TOPIC}[0] not read yet"}
    # A message from the future does not show that earlier messages were read.
    Ledger.objects.filter(pk=ledger.pk).update(newest_timestamp=seen + timedelta(days=1_000))
    assert sorted(find_holds()) == [get_day(-5), get_day(-4)]


def test_no_day_is_held_for_messages_that_brokers_deleted_before_annals_read_them() -> None:
    add_ledger_row(read=7, lost=3)
    assert find_holds() == {}


def test_held_day_is_not_dropped_and_plan_shows_reason() -> None:
    create_bad_message(b"{}", timestamp=NOW - timedelta(days=5))
    guarded = make_policy(find_held_days=find_unsettled_days, hold_days=7)
    outcome = execute_plans(guarded)
    assert outcome.held == [days.build_partition_name(TABLE, get_day(-5))]
    assert outcome.dropped == [days.build_partition_name(TABLE, get_day(-4))]
    assert outcome.exit_code == 1
    reasons = {
        line.partition.name: line.reason
        for table in build_plans(guarded)
        for line in table.list_lines()
    }
    assert reasons[outcome.held[0]] == "held: 1 unresolved in quarantine"
    Quarantined.objects.update(status=Quarantined.Status.DISCARDED)
    assert execute_plans(guarded).dropped == outcome.held


@pytest.mark.parametrize("pending", [True, False])
def test_detached_day_is_attached_again_when_it_is_held(pending: bool) -> None:
    """Otherwise the message for which the day is held would be expired when it arrives."""
    with connect_plainly() as plain:
        if pending:
            with leave_half_dropped(plain, get_day(-5)):
                pass
        else:
            name = days.build_partition_name(TABLE, get_day(-5))
            plain.execute(f"ALTER TABLE {TABLE} DETACH PARTITION {name}")
        create_bad_message(b"{}", timestamp=NOW - timedelta(days=5))
        outcome = execute_plans(make_policy(find_held_days=find_unsettled_days, hold_days=7))
        assert outcome.broken == []
        assert outcome.held == [days.build_partition_name(TABLE, get_day(-5))]
        assert days.locate_day(plain, TABLE, get_day(-5)).state is days.DayState.ATTACHED


def test_day_is_held_at_most_for_configured_number_of_days() -> None:
    for offset, of in enumerate((-5, -4)):
        create_bad_message(b"{}", offset, timestamp=NOW + timedelta(days=of))
    assert sorted(find_holds(hold_days=2)) == [get_day(-5), get_day(-4)]
    assert list(find_holds(hold_days=1)) == [get_day(-4)]
    assert find_holds(hold_days=0) == {}


def test_option_force_drops_held_days() -> None:
    create_bad_message(b"{}", timestamp=datetime(2026, 3, 24, tzinfo=UTC))
    assert len(execute_plans(make_policy()).dropped) == len(OLD)


def find_holds_of_command() -> dict[date, str]:
    """Return the held days and the reasons that `partitions maintain` finds."""
    return dict(
        build_plans(make_policy(find_held_days=find_days_to_hold, hold_days=7))[
            0
        ].strategy.held_days
    )


def test_all_old_days_are_held_while_number_of_unread_messages_is_unknown() -> None:
    """The number is unknown if no consumer runs or if one of the topics was never read."""
    never = f"{TOPIC} was never read; {MIGRATION} was never read"
    assert find_holds_of_command() == {get_day(-5): never, get_day(-4): never}
    now = timezone.now()
    add_ledger_row(end_known_at=now)
    late = add_ledger_row(topic=MIGRATION)
    assert set(find_holds_of_command().values()) == {f"the end of {MIGRATION}[0] is not known"}
    # The consumer ended before midnight, so messages that were sent before midnight may be unread.
    yesterday = now.astimezone(UTC).replace(hour=0, minute=0) - timedelta(minutes=2)
    Ledger.objects.filter(pk=late.pk).update(end_known_at=yesterday)
    since = f"{yesterday:%Y-%m-%d %H:%M} UTC"
    assert set(find_holds_of_command().values()) == {
        f"no consumer has seen the end of {MIGRATION}[0] since {since}"
    }
    Ledger.objects.filter(pk=late.pk).update(end_known_at=now)
    assert find_holds_of_command() == {}
    Ledger.objects.filter(pk=late.pk).update(end_known_at=yesterday)
    RetiredTopic.objects.create(topic=MIGRATION, why="the end", retired_at=NOW)
    assert find_holds_of_command() == {}
