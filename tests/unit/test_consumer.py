"""The parts of a consumer: positions, batches, timers, worker thread and forecaster."""

import logging
import time
from collections.abc import Mapping
from concurrent.futures import Future
from threading import Event
from typing import Any
from unittest.mock import MagicMock

import confluent_kafka as ck
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from history.kinds.entities import ENTITIES
from ingest.consumer import loss_forecaster, periodic_work
from ingest.consumer.lanes import FingerprintCache
from ingest.consumer.loop import log_lost_offsets
from ingest.consumer.loss_forecaster import LossForecaster
from ingest.consumer.periodic_work import PeriodicWork, select_claimed_ends
from ingest.consumer.positions import Breaker, Positions, StandstillTimer, Tolerance
from ingest.consumer.writers import WorkerThread
from ingest.kafka import client
from ingest.kafka.brokers import BrokerSnapshot
from ingest.kafka.client import (
    ASK_AGAIN_SECONDS,
    StuckMemberTimer,
    ThrottledLog,
    UnreachableError,
    explain_connection_error,
)
from ingest.kafka.retention_forecast import DeletionForecast, LogForecast, PartitionLog
from ingest.messages.decode import decode_message
from ingest.messages.message import (
    KafkaMessage,
    KafkaPartition,
    LastMessage,
    TopicPartition,
)
from ingest.store.batch import GIANT_BYTES, Batch, Limits, OffsetGap
from ingest.store.claim import Claim
from tests.messages import (
    EXPIRED,
    SOURCE,
    TOPIC,
    WINDOW,
    make_message,
    make_value,
    make_value_with_data,
)

TOLERANCE = Tolerance(5, 0.5, 10)
ONE, TWO = TopicPartition("a", "id", 0), TopicPartition("a", "id", 1)


def test_assigned_partitions_are_due_to_be_claimed_until_they_are_claimed() -> None:
    positions = Positions()
    assert not positions.settled
    assert not positions.is_claim_due(1e9)
    positions.assign([ONE.kafka, TWO.kafka], 5)
    assert positions.is_claim_due(5)
    assert not positions.settled
    last = LastMessage(7, 3, b"")  # this message is read again first
    positions.grant([Claim(ONE, 1, 10, 0, False, last=last), Claim(TWO, 1, 11, 0, True)], TOLERANCE)
    assert not positions.is_claim_due(1e9)
    assert positions.settled
    assert positions.get_start_offsets() == {ONE.kafka: 7, TWO.kafka: 11}
    assert (positions.list_unhalted(), [*positions.select_halted()]) == ([ONE.kafka], [TWO.kafka])
    positions.release(60)
    assert positions.claimed == {}
    assert not positions.is_claim_due(59)
    assert not positions.settled
    assert positions.is_claim_due(60)
    positions.revoke()
    assert not positions.is_claim_due(1e9)


def test_recording_of_halts_is_repeated_only_after_the_previous_attempt_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the database is away, the consumer must not start a statement in each turn."""
    jobs: list[Future[None]] = []

    def record(_: object, __: str) -> Future[None]:
        jobs.append(Future())
        return jobs[-1]

    stays = MagicMock(return_value=None)  # a probe, whose thread may have ended at the next turn
    background = PeriodicWork(stays, MagicMock(), MagicMock(), record, MagicMock())
    monkeypatch.setattr(periodic_work, "HEARTBEAT_SECONDS", 0.0)
    positions = Positions()
    positions.assign([ONE.kafka], 0)
    positions.grant([Claim(ONE, 1, 10, 0, True)], TOLERANCE)
    source = MagicMock(
        poll_snapshot=lambda _: None, get_end_offset=lambda _: None, standstill_seconds=60.0
    )
    source.ask_topics.return_value.wait.return_value = False  # the brokers have not answered yet
    for _ in range(3):
        background.run_due_work(source, positions, WINDOW)
    assert len(jobs) == 1
    jobs[0].set_result(None)
    background.run_due_work(source, positions, WINDOW)
    assert len(jobs) == 2
    background.close(1)


@pytest.mark.parametrize(
    "pattern, sentence",
    [
        ("xxxx", None),
        ("xxxxx", "5 bad messages in a row"),
        ("x.x.x.x.x", None),
        ("x.x.x.x.x.", "5 of the last 10 messages are bad"),
    ],
)
def test_circuit_breaker_gives_reason_to_halt_only_when_bad_messages_reach_a_limit(
    pattern: str, sentence: str | None
) -> None:
    breaker = Breaker(TOLERANCE)
    for item in pattern:
        breaker.note(item == "x")
    explanation = breaker.explain_trip()
    assert (explanation and explanation.english) == sentence


def test_each_range_of_lost_offsets_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """One poll can find several ranges in one partition."""
    batch = Batch(Limits(10, 1_000))
    batch.skip(ONE, 0, 9, (OffsetGap(0, 4, True), OffsetGap(4, 5, False), OffsetGap(5, 9, True)))
    log_lost_offsets(batch)
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [
        "the broker deleted offsets 0 to 3 before they were read",
        "the broker deleted offsets 5 to 8 before they were read",
    ]


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 8), st.integers(1, 20))
def test_circuit_breaker_opens_at_limit_of_consecutive_bad_messages_or_at_limit_of_their_share(
    bad: list[bool], consecutive: int, window: int
) -> None:
    breaker = Breaker(Tolerance(consecutive, 0.4, window))
    for number in range(len(bad)):
        breaker.note(bad[number])
        seen = bad[: number + 1]
        row = next((n for n, item in enumerate(reversed(seen)) if not item), len(seen))
        last = seen[-window:]
        expected = row >= consecutive or (len(last) == window and sum(last) >= 0.4 * window)
        assert (breaker.explain_trip() is not None) is expected


@given(st.lists(st.booleans() | st.integers(0, 30), max_size=20))
@example([True] * TOLERANCE.consecutive + [0])
def test_circuit_breaker_counts_good_messages_equally_when_noted_together_or_one_by_one(
    steps: list[bool | int],
) -> None:
    one_by_one, at_once = Breaker(TOLERANCE), Breaker(TOLERANCE)
    for step in steps:
        if isinstance(step, bool):
            one_by_one.note(step)
            at_once.note(step)
        else:
            for _ in range(step):
                one_by_one.note(False)
            at_once.note_good(step)
        assert one_by_one.explain_trip() == at_once.explain_trip()


A, B = ("a", 0), ("b", 0)
WAIT = 30.0


def find_standstill_time(still: StandstillTimer, since: float, limit: float = 1000.0) -> float:
    """Ask the timer every 5 s while no position changes. Return when it reports a standstill."""
    now = since
    while not still.note_positions(now, {A: 5, B: 1}, {A}):
        now += 5
        assert now < since + limit
    return now


def test_standstill_timer_doubles_its_limit_each_time_until_a_message_is_delivered() -> None:
    """A standstill means that the Kafka client delivers none of the unread messages."""
    still = StandstillTimer(WAIT)
    first = find_standstill_time(still, 0.0)
    assert first == WAIT
    # The consumer has claimed its partitions again, and the positions are still the same.
    second = find_standstill_time(still, first + 5)
    assert second - (first + 5) == 2 * WAIT
    assert not still.note_positions(second + 5, {A: 6, B: 1}, {A})
    assert find_standstill_time(still, second + 10) == second + 15 + WAIT


@pytest.mark.parametrize("moves, more", [(1, {A}), (0, set())])
def test_standstill_timer_ignores_partitions_that_advance_or_are_read_to_the_end(
    moves: int, more: set[KafkaPartition]
) -> None:
    still = StandstillTimer(WAIT)
    assert not any(still.note_positions(5.0 * n, {A: 5, B: n * moves}, more) for n in range(100))


def test_standstill_timer_does_not_count_time_without_unread_messages() -> None:
    still = StandstillTimer(WAIT)
    for turn in range(100):
        assert not still.note_positions(5.0 * turn, {A: 5, B: 1}, set())
    assert find_standstill_time(still, 500.0) == 500.0 + WAIT


MESSAGE = KafkaMessage("t", 0, 7, 1_700_000_000_000, b"key", b"value", leader_epoch=3)


@pytest.mark.parametrize(
    "change",
    [
        {"offset": 8},
        {"timestamp": 1},
        {"key": b"kez"},
        {"key": None},
        {"value": b"other"},
        {"value": None},
        {"key": b"keyv", "value": b"alue"},
        {"leader_epoch": 4},
    ],
    ids=str,
)
def test_fingerprint_of_message_changes_when_any_of_its_fields_changes(
    change: dict[str, Any],
) -> None:
    assert not LastMessage.from_message(MESSAGE).is_same(structs.replace(MESSAGE, **change))


def test_end_offset_requested_before_topic_was_recreated_is_ignored() -> None:
    """After a truncation of the log the end offset counts, because the topic keeps its id."""
    result = Positions()
    claims = [
        Claim(TopicPartition("mine", "new", 0), 1, 0, 0, False, 0),
        Claim(TopicPartition("cut", "same#2", 0), 1, 0, 0, False, 0),
        Claim(TopicPartition("without ids", "", 0), 1, 0, 0, False, 0),
    ]
    result.grant(claims, Tolerance(100, 0.5, 1_000))
    ends = {("mine", 0): 9, ("cut", 0): 8, ("without ids", 0): 7, ("gone", 0): 6, ("mine", 1): 5}
    look = BrokerSnapshot(
        0.0, {"mine": "old", "cut": "same", "without ids": "", "gone": "id"}, ends
    )
    assert select_claimed_ends(look, result) == {("cut", 0): 8, ("without ids", 0): 7}
    look = BrokerSnapshot(0.0, {"mine": "new"}, ends)
    assert select_claimed_ends(look, result) == {("mine", 0): 9}


ROOMY = Limits(1_000, 1 << 30)


def make_message_of_size(size: int, offset: int = 0) -> KafkaMessage:
    """Return a good message that has exactly this number of bytes together with its key."""
    padding = size - make_message(make_value_with_data(b'{"a":""}')).size
    result = make_message(make_value_with_data(b'{"a":"' + b"x" * padding + b'"}'), offset)
    assert result.size == size
    return result


def fill_batch(*messages: KafkaMessage, limits: Limits = ROOMY) -> Batch:
    batch = Batch(limits)
    for next_message in messages:
        assert batch.fits(next_message.size)
        batch.add(decode_message(next_message, WINDOW), SOURCE, next_message.offset)
    return batch


def test_headers_count_towards_the_byte_limit_of_a_batch() -> None:
    limits = Limits(1_000, 2_000)
    assert fill_batch(make_message_of_size(1_000), limits=limits).fits(
        make_message_of_size(1_000, 1).size
    )
    assert not fill_batch(make_message_of_size(1_000), limits=limits).fits(
        make_message_of_size(1_001, 1).size
    )
    laden = make_message(
        make_message_of_size(900).value, 1, headers=(("name", b"x" * 97), ("none", None))
    )
    assert laden.size == 900 + len("name") + 97 + len("none")
    assert not fill_batch(make_message_of_size(1_000), limits=limits).fits(laden.size)


def test_huge_message_gets_a_batch_of_its_own() -> None:
    small, giant = make_message_of_size(GIANT_BYTES), make_message_of_size(GIANT_BYTES + 1)
    assert fill_batch(small).fits(small.size)
    assert not fill_batch(small).fits(giant.size)
    assert not fill_batch(giant).fits(small.size)
    assert fill_batch(giant).fits(giant.size)


def test_batch_orders_kinds_as_they_are_declared() -> None:
    """All writers must lock the tables in this order."""
    batch = Batch(ROOMY)
    for number, entity in enumerate(reversed(ENTITIES)):
        source = TopicPartition(entity.topics[0], "id", 0)
        body = make_message(make_value(productInstanceId="A1"), number, entity.topics[0])
        batch.add(decode_message(body, WINDOW), source, number)
    assert batch.list_entities() == [entity.name for entity in ENTITIES]


BODIES = st.sampled_from(
    [
        make_value(),
        make_value(version=8),
        b"bad",
        EXPIRED,
        make_message_of_size(GIANT_BYTES + 1).value,
    ]
)
STEPS = st.lists(st.tuples(st.sampled_from([0, 0, 0, 0, 0, 1, 3]), BODIES), max_size=12)


@given(STEPS, st.integers(1, 8), st.sampled_from([1, 2_000, 1 << 30]), st.booleans())
def test_adding_many_messages_at_once_gives_same_batch_as_adding_one_by_one(
    steps: list[tuple[int, bytes]], rows: int, size: int, skipping: bool
) -> None:
    """Both ways of adding end at an unexplained missing offset, at a message that does not fit, or
    at a bad message."""
    messages, offset = [], 5
    for hole, body in steps:
        offset += hole
        messages.append(KafkaMessage(TOPIC, 0, offset, offset * 7 % 5, b"key", body))
        offset += 1
    decoded = [decode_message(message, WINDOW) for message in messages]
    one_by_one, at_once = Batch(Limits(rows, size)), Batch(Limits(rows, size))
    expected, added, reject = 5, 0, None
    for next_message in messages:
        hole = next_message.offset != expected
        if (hole and not skipping) or not one_by_one.fits(next_message.size):
            break
        gaps = (OffsetGap(expected, next_message.offset, lost=False),) if hole else ()
        reject = one_by_one.add(decode_message(next_message, WINDOW), SOURCE, expected, gaps)
        expected, added = next_message.offset + 1, added + 1
        if reject is not None:
            break
    assert at_once.add_many(decoded, SOURCE, 5, skipping) == (added, reject)
    for batch in (one_by_one, at_once):
        batch.arrange()
    for name in ("messages", "bytes", "rows", "keys", "expired", "bad_messages", "progress"):
        assert getattr(one_by_one, name) == getattr(at_once, name)
    assert [item.fits(make_message_of_size(900).size) for item in (one_by_one, at_once)] in (
        [True] * 2,
        [False] * 2,
    )


def test_fingerprint_cache_is_limited_in_size_and_keeps_newest_entries() -> None:
    memory = FingerprintCache(10)
    for number in range(100):
        memory.update({str(number): number})
        assert all(memory.get(str(n)) == n for n in range(max(0, number - 9), number + 1))
        assert sum(memory.get(str(n)) is not None for n in range(number + 1)) <= 20
    assert memory.get("0") is None


PATIENCE = 15.0


@pytest.fixture
def stuck_member_timer() -> StuckMemberTimer:
    """The timer of a member that lost its topic partitions at time 0.

    At that time, the timer does not know whether the brokers answer.
    """
    timer = StuckMemberTimer(PATIENCE, -100.0)
    timer.end()
    timer.begin(0.0, are_brokers_up=False)
    return timer


def find_stuck_time(
    stuck_member_timer: StuckMemberTimer, since: float, away_until: float = 0.0
) -> float:
    """Ask the timer every half second. Return when the member counts as stuck.

    Args:
        away_until: The time at which the brokers begin to answer.
    """
    now = since
    while True:
        now += 0.5
        if stuck_member_timer.is_due(now):
            if now < away_until:
                stuck_member_timer.note_unanswered(now)
            elif stuck_member_timer.note_answered(now):
                return now


@pytest.mark.parametrize("outage", [10.0, 60.0, 3600.0])
def test_time_after_which_member_is_considered_stuck_does_not_depend_on_length_of_outage(
    stuck_member_timer: StuckMemberTimer, outage: float
) -> None:
    stuck = find_stuck_time(stuck_member_timer, 0.0, away_until=outage)
    assert stuck <= outage + ASK_AGAIN_SECONDS + PATIENCE + 1
    assert stuck >= outage + PATIENCE


def test_limit_of_stuck_member_timer_doubles_at_each_expiry_until_assignment() -> None:
    patience = StuckMemberTimer(PATIENCE, 0.0)
    first = find_stuck_time(patience, 0.0)
    second = find_stuck_time(patience, first)
    assert find_stuck_time(patience, second) - second == 2 * (second - first) == 4 * first
    patience.end()
    patience.begin(1000.0)
    assert find_stuck_time(patience, 1000.0) == 1000.0 + PATIENCE


def log_says(throttled: ThrottledLog, text: str) -> bool:
    return throttled.filter(logging.LogRecord("x", logging.WARNING, "", 0, text, None, None))


def test_similar_warning_is_logged_again_only_after_a_pause() -> None:
    now = 0.0
    throttled = ThrottledLog(lambda: now)
    assert log_says(throttled, "broker 1 down after 12 ms")
    assert not log_says(throttled, "broker 1 down after 13 ms")
    assert log_says(throttled, "broker is back")
    now = client.REPEAT_LOG_SECONDS
    assert log_says(throttled, "broker 1 down after 14 ms")


def test_worker_thread_runs_jobs_in_order_and_returns_their_results() -> None:
    worker, outcome = WorkerThread("test"), []
    first = worker.submit(lambda: outcome.append(1))
    second = worker.submit(lambda: 1 // 0)
    third = worker.submit(lambda: (*outcome, 3))
    assert third.result(120) == (1, 3)
    assert first.result() is None
    with pytest.raises(ZeroDivisionError):
        second.result()
    assert worker.close(10)


def test_closing_worker_thread_cancels_jobs_that_have_not_begun() -> None:
    worker, begun, go = WorkerThread("test"), Event(), Event()
    running = worker.submit(lambda: begun.set() or go.wait())
    waiting = worker.submit(lambda: "done")
    assert begun.wait(120)
    assert not worker.close(0)
    go.set()
    assert worker.close(10)
    assert running.result() is True
    assert waiting.cancelled()


AWAY = UnreachableError(ck.KafkaException(ck.KafkaError(ck.KafkaError._TRANSPORT)))
SOON, LATER, HALTED = ("soon", 0), ("later", 0), ("halted", 0)


class FixedEnds:
    """A fake GroupMember in which all topic partitions have the same end offset."""

    def get_end_offset(self, partition: KafkaPartition) -> int:  # noqa: ARG002
        return 10_000


class RecordedForecast:
    """A fake HeartbeatWriter that keeps the last submitted forecast."""

    def __init__(self) -> None:
        self.log_forecasts: dict[Claim, LogForecast] = {}

    def submit_forecast(
        self,
        log_forecasts: dict[Claim, LogForecast],
        rate: float | None,  # noqa: ARG002
    ) -> None:
        self.log_forecasts = log_forecasts


class MovableClock:
    """A fake module `time` whose monotonic clock the test moves."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return time.time()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> MovableClock:
    clock = MovableClock()
    monkeypatch.setattr(loss_forecaster, "time", clock)
    return clock


def make_log_forecast(seconds: float) -> LogForecast:
    log = PartitionLog(time.time(), 0, 1000, 1.0, 100.0)
    return LogForecast(log, DeletionForecast(time.time() + seconds, 1000, 0, 3600.0))


def make_positions() -> Positions:
    result = Positions()
    result.assign([SOON, LATER, HALTED], 0.0)
    tolerance = Tolerance(3, 0.7, 8)
    claims = (
        Claim(TopicPartition(topic, "", number), 1, 0, 0, topic == "halted", 0)
        for topic, number in (SOON, LATER, HALTED)
    )
    result.grant(claims, tolerance)
    return result


def create_forecaster_with_answer(
    answer: Mapping[KafkaPartition, LogForecast] | Exception, clock: MovableClock
) -> tuple[Any, ...]:
    """Return a forecaster that has received `answer`, and the objects that the forecaster uses.

    Returns:
        The forecaster, a fake GroupMember, a fake HeartbeatWriter and the consumer's positions.
    """

    def ask(_: Mapping[KafkaPartition, int | None]) -> dict[KafkaPartition, LogForecast]:
        if isinstance(answer, Exception):
            raise answer
        return {**answer}

    source, recorded, place = FixedEnds(), RecordedForecast(), make_positions()
    forecaster: Any = LossForecaster(ask, recorded)  # type: ignore[arg-type]
    clock.now += 60
    forecaster.ask_when_due(source, place)
    future: Future[Any] = forecaster._request
    future.exception(10)
    return forecaster, source, recorded, place


def test_forecaster_records_expected_losses_of_each_partition(clock: MovableClock) -> None:
    forecaster, source, recorded, place = create_forecaster_with_answer(
        {SOON: make_log_forecast(600), HALTED: make_log_forecast(3000)}, clock
    )
    forecaster.ask_when_due(source, place)
    assert {claim.topic_partition.topic for claim in recorded.log_forecasts} == {"soon", "halted"}


@pytest.mark.parametrize("error", [AWAY, ValueError("what is this?")])
def test_error_of_forecaster_does_not_stop_reading(error: Exception, clock: MovableClock) -> None:
    forecaster, source, recorded, place = create_forecaster_with_answer(error, clock)
    clock.now += 2
    forecaster.ask_when_due(source, place)
    assert recorded.log_forecasts == {}


def test_reading_rate_is_measured_only_while_consumer_lags_behind(clock: MovableClock) -> None:
    forecaster, source, _, place = create_forecaster_with_answer({}, clock)
    source.get_end_offset = lambda _: 100_000
    forecaster.ask_when_due(source, place)
    place.claimed[SOON].expected += 50_000
    clock.now += 10
    forecaster.ask_when_due(source, place)
    assert forecaster.reading_rate == 5_000.0
    source.get_end_offset = lambda _: 50_001
    place.claimed[SOON].expected += 10
    clock.now += 10
    forecaster.ask_when_due(source, place)
    # The partition that is read to its end does not count. Of the other two nothing was read.
    assert forecaster.reading_rate != 5_000.0
    for item in place.claimed.values():
        item.expected = 50_001
    before = forecaster.reading_rate
    clock.now += 10
    forecaster.ask_when_due(source, place)
    assert forecaster.reading_rate == before


def test_connection_error_about_tls_names_the_settings_to_correct() -> None:
    sentence = explain_connection_error(
        "ssl://kafka:9093/bootstrap: SSL handshake failed: certificate verify failed (after 5ms in "
        "state SSL_HANDSHAKE)"
    )
    assert sentence is not None
    assert "ANNALS_KAFKA_SSL_CA_LOCATION" in sentence
