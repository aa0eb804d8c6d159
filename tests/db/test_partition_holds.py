"""A day whose messages are not settled is held, for a while, and says why."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from history.daily import days
from history.entities import BY_NAME
from history.partitions.maintain import maintain
from history.partitions.plan import plan
from ingest.completeness.holds import may_get_rows, unsettled
from ingest.models import Ledger, Quarantined, RetiredTopic
from ingest.source.decode import guess_day
from tests.db.noted import held, ledger_row
from tests.db.partitioned import NOW, TABLE, day, half_dropped, policy, raw

pytestmark = pytest.mark.usefixtures("tables")

TOPIC, MIGRATION = BY_NAME["product-instance"].topics
OTHER = BY_NAME["product-car"].topics[0]
OLD = [(TABLE, day(-5)), (TABLE, day(-4))]


@pytest.fixture(autouse=True)
def old_days(tables: None) -> None:
    with raw() as plain:
        for table, of in OLD:
            days.create(plain, table, of)


def bad(value: bytes, offset: int = 0, **fields: Any) -> Quarantined:
    return held(offset=offset, value=value, day=guess_day(value), **{"timestamp": NOW, **fields})


def read(**fields: Any) -> Ledger:
    return ledger_row(**{"stored": fields.get("read", 10), **fields})


def holds(hold_days: int = 7) -> dict[date, str]:
    table = plan(policy(holds=unsettled, hold_days=hold_days))[0]
    return dict(table.strategy.holds)


def test_nothing_open_holds_nothing() -> None:
    read()
    bad(b"{}", status=Quarantined.Status.DISCARDED)
    bad(b"{}", 1, status=Quarantined.Status.RESOLVED)
    assert holds() == {}
    assert maintain(policy(holds=unsettled, hold_days=7)).dropped == [
        days.partition_name(*place) for place in OLD
    ]


@pytest.mark.parametrize("status", ["new", "retrying", "failed"])
def test_a_message_in_quarantine_holds_the_day_that_it_names(status: str) -> None:
    bad(f'{{"id": 7, "updatedAt" : "{day(-5)}T23:00:00.123456789"}}'.encode(), status=status)
    assert holds() == {day(-5): "1 unresolved in quarantine"}


def test_the_day_is_utc_whatever_the_offset() -> None:
    bad(f'{{"updatedAt":"{day(-4)}T01:30:00+03:00"}}'.encode())
    assert list(holds()) == [day(-5)]


@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"\xff\x00\xfe", b'{"updatedAt":"yesterday..."}'),
        b'{"updatedAt":"0001-01-01T00:00:00+14:00"}',
        b'{"updatedAt":"9999-12-31T23:59:59-14:00"}',
    ],
)
def test_a_message_that_names_no_day_holds_the_one_on_which_it_was_sent(value: bytes) -> None:
    sent = NOW - timedelta(days=4)
    bad(value, timestamp=sent)
    bad(value, 1, topic=OTHER, timestamp=sent)
    assert list(holds()) == [day(-4)]


def test_sums_that_do_not_add_up_hold_every_old_day_of_the_table() -> None:
    read(stored=9)
    assert holds() == {of: f"the ledger of {TOPIC}[0] does not add up" for _, of in OLD}


def test_unread_messages_hold_the_days_that_reading_has_not_passed() -> None:
    seen = timezone.now()
    ledger = read(high_watermark=25, newest_timestamp=NOW - timedelta(days=4), end_known_at=seen)
    assert holds() == {day(-4): f"15 messages of {TOPIC}[0] not read yet"}
    # A message from the future says nothing of those that wait behind it.
    Ledger.objects.filter(pk=ledger.pk).update(newest_timestamp=seen + timedelta(days=1_000))
    assert sorted(holds()) == [day(-5), day(-4)]


def test_what_the_broker_deleted_unread_holds_nothing() -> None:
    read(read=7, lost=3)
    assert holds() == {}


def test_a_held_day_is_not_dropped_and_the_plan_says_why() -> None:
    bad(b"{}", timestamp=NOW - timedelta(days=5))
    guarded = policy(holds=unsettled, hold_days=7)
    outcome = maintain(guarded)
    assert outcome.held == [days.partition_name(TABLE, day(-5))]
    assert outcome.dropped == [days.partition_name(TABLE, day(-4))]
    assert outcome.exit_code == 1
    reasons = {line.part.name: line.reason for table in plan(guarded) for line in table.lines()}
    assert reasons[outcome.held[0]] == "held: 1 unresolved in quarantine"
    Quarantined.objects.update(status=Quarantined.Status.DISCARDED)
    assert maintain(guarded).dropped == outcome.held


@pytest.mark.parametrize("pending", [True, False])
def test_a_held_day_that_an_interrupted_run_detached_is_attached_again(pending: bool) -> None:
    """Otherwise the message for which it is held would be expired when it arrives."""
    with raw() as plain:
        if pending:
            with half_dropped(plain, day(-5)):
                pass
        else:
            name = days.partition_name(TABLE, day(-5))
            plain.execute(f"ALTER TABLE {TABLE} DETACH PARTITION {name}")
        bad(b"{}", timestamp=NOW - timedelta(days=5))
        outcome = maintain(policy(holds=unsettled, hold_days=7))
        assert outcome.broken == []
        assert outcome.held == [days.partition_name(TABLE, day(-5))]
        assert days.locate(plain, TABLE, day(-5)).state is days.DayState.ATTACHED


def test_the_hold_has_a_limit() -> None:
    for offset, of in enumerate((-5, -4)):
        bad(b"{}", offset, timestamp=NOW + timedelta(days=of))
    assert sorted(holds(hold_days=2)) == [day(-5), day(-4)]
    assert list(holds(hold_days=1)) == [day(-4)]
    assert holds(hold_days=0) == {}


def test_force_asks_no_guard() -> None:
    bad(b"{}", timestamp=datetime(2026, 3, 24, tzinfo=UTC))
    assert len(maintain(policy()).dropped) == len(OLD)


def of_command() -> dict[date, str]:
    """As `partitions maintain` asks."""
    return dict(plan(policy(holds=may_get_rows, hold_days=7))[0].strategy.holds)


def test_while_nobody_knows_what_is_unread_old_days_are_held() -> None:
    """No consumer runs, or one of the topics was never read."""
    never = f"{TOPIC} was never read; {MIGRATION} was never read"
    assert of_command() == {day(-5): never, day(-4): never}
    now = timezone.now()
    read(end_known_at=now)
    late = read(topic=MIGRATION)
    assert set(of_command().values()) == {f"the end of {MIGRATION}[0] is not known"}
    # What was sent before midnight may wait for a consumer that ended before.
    yesterday = now.astimezone(UTC).replace(hour=0, minute=0) - timedelta(minutes=2)
    Ledger.objects.filter(pk=late.pk).update(end_known_at=yesterday)
    since = f"{yesterday:%Y-%m-%d %H:%M} UTC"
    assert set(of_command().values()) == {
        f"no consumer has seen the end of {MIGRATION}[0] since {since}"
    }
    Ledger.objects.filter(pk=late.pk).update(end_known_at=now)
    assert of_command() == {}
    Ledger.objects.filter(pk=late.pk).update(end_known_at=yesterday)
    RetiredTopic.objects.create(topic=MIGRATION, why="the end", retired_at=NOW)
    assert of_command() == {}
