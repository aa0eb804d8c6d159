"""The parts of a consumer: its partitions, batches, clients of Kafka, and what it holds back."""

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

from history.entities import ENTITIES
from ingest.consumer import loss_forecaster
from ingest.consumer.lanes import FingerprintCache
from ingest.consumer.loss_forecaster import LossForecaster
from ingest.consumer.periodic_work import PeriodicWork, select_claimed_ends
from ingest.consumer.positions import Breaker, Positions, StandstillTimer, Tolerance
from ingest.consumer.writers import WorkerThread
from ingest.forecast import Forecast, Log, Outlook
from ingest.source import client
from ingest.source.brokers import BrokerSnapshot
from ingest.source.client import ASK_AGAIN_SECONDS, StuckMemberTimer, ThrottledLog, Unreachable
from ingest.source.decode import decode_message
from ingest.source.message import KafkaPartition, LastMessage, Message, TopicPartition
from ingest.store.batch import GIANT_BYTES, Batch, Claim, Limits, OffsetGap
from tests.messages import EXPIRED, SOURCE, TOPIC, WINDOW, message, value, with_data

TOLERANCE = Tolerance(5, 0.5, 10)
ONE, TWO = TopicPartition("a", "id", 0), TopicPartition("a", "id", 1)


def test_what_is_assigned_is_due_and_settled_once_claimed() -> None:
    positions = Positions()
    assert not positions.settled
    assert not positions.is_claim_due(1e9)
    positions.assign([ONE.kafka, TWO.kafka], 5)
    assert positions.is_claim_due(5)
    assert not positions.settled
    last = LastMessage(7, 3, b"")  # it is read again first
    positions.grant([Claim(ONE, 1, 10, 0, False, last=last), Claim(TWO, 1, 11, 0, True)], TOLERANCE)
    assert not positions.is_claim_due(1e9)
    assert positions.settled
    assert positions.get_start_offsets() == {ONE.kafka: 7, TWO.kafka: 11}
    assert (positions.list_reading(), [*positions.select_halted()]) == ([ONE.kafka], [TWO.kafka])
    positions.release(60)
    assert positions.claimed == {}
    assert not positions.is_claim_due(59)
    assert not positions.settled
    assert positions.is_claim_due(60)
    positions.revoke()
    assert not positions.is_claim_due(1e9)


def test_halts_are_recorded_again_only_after_the_last_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A database that is away for an hour gets one statement then, not one for each turn."""
    jobs: list[Future[None]] = []

    def record(_: object) -> Future[None]:
        jobs.append(Future())
        return jobs[-1]

    stays = MagicMock(return_value=None)  # a probe: its thread may be done at the next turn
    background = PeriodicWork(stays, MagicMock(), MagicMock(), record, MagicMock())
    monkeypatch.setattr(background, "_write_heartbeat", lambda *_: {})
    monkeypatch.setattr(background, "_is_standing_still", lambda *_: False)
    positions = Positions()
    positions.assign([ONE.kafka], 0)
    positions.grant([Claim(ONE, 1, 10, 0, True)], TOLERANCE)
    source = MagicMock(poll_snapshot=lambda _: None)
    source.ask_topics.return_value.wait.return_value = False  # the brokers have not answered yet
    for _ in range(3):
        background._due = 0.0
        background.run_due_work(source, positions, WINDOW)
    assert len(jobs) == 1
    jobs[0].set_result(None)
    background._due = 0.0
    background.run_due_work(source, positions, WINDOW)
    assert len(jobs) == 2
    background.close(1)


@pytest.mark.parametrize(
    "pattern, said",
    [
        ("xxxx", None),
        ("xxxxx", "5 bad messages in a row"),
        ("x.x.x.x.x", None),
        ("x.x.x.x.x.", "5 of the last 10 messages are bad"),
    ],
)
def test_the_sentence_of_a_breaker(pattern: str, said: str | None) -> None:
    breaker = Breaker(TOLERANCE)
    for each in pattern:
        breaker.note(each == "x")
    assert breaker.explain_trip() == said


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 8), st.integers(1, 20))
def test_it_says_what_counting_says(bad: list[bool], consecutive: int, window: int) -> None:
    breaker = Breaker(Tolerance(consecutive, 0.4, window))
    for number in range(len(bad)):
        breaker.note(bad[number])
        seen = bad[: number + 1]
        row = next((n for n, each in enumerate(reversed(seen)) if not each), len(seen))
        last = seen[-window:]
        expected = row >= consecutive or (len(last) == window and sum(last) >= 0.4 * window)
        assert (breaker.explain_trip() is not None) is expected


@given(st.lists(st.booleans() | st.integers(0, 30), max_size=20))
@example([True] * TOLERANCE.consecutive + [0])
def test_good_messages_may_be_counted_at_once(steps: list[bool | int]) -> None:
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


def noticed_at(still: StandstillTimer, since: float, most: float = 1000.0) -> float:
    """When it is noticed that A stands at 5, looked at every 5 seconds."""
    now = since
    while not still.note_positions(now, {A: 5, B: 1}, {A}):
        now += 5
        assert now < since + most
    return now


def test_the_next_time_it_waits_twice_as_long_until_something_comes() -> None:
    still = StandstillTimer(WAIT)
    first = noticed_at(still, 0.0)
    assert first == WAIT
    # The claims were given up and made again: positions are those of before.
    second = noticed_at(still, first + 5)
    assert second - (first + 5) == 2 * WAIT
    assert not still.note_positions(second + 5, {A: 6, B: 1}, {A})
    assert noticed_at(still, second + 10) == second + 15 + WAIT


@pytest.mark.parametrize("moves, more", [(1, {A}), (0, set())])
def test_one_that_moves_is_enough_and_what_is_read_to_its_end_may_stand(
    moves: int, more: set[KafkaPartition]
) -> None:
    still = StandstillTimer(WAIT)
    assert not any(still.note_positions(5.0 * n, {A: 5, B: n * moves}, more) for n in range(100))


def test_the_time_counts_from_when_there_is_more() -> None:
    still = StandstillTimer(WAIT)
    for turn in range(100):
        assert not still.note_positions(5.0 * turn, {A: 5, B: 1}, set())
    assert noticed_at(still, 500.0) == 500.0 + WAIT


MESSAGE = Message("t", 0, 7, 1_700_000_000_000, b"key", b"value", leader_epoch=3)


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
def test_another_message_is_not_the_same(change: dict[str, Any]) -> None:
    assert not LastMessage.of(MESSAGE).is_same(structs.replace(MESSAGE, **change))


def test_the_end_of_another_topic_of_the_same_name_is_not_taken() -> None:
    """It was asked for before the topic was deleted and created again, or after a partition went
    to another consumer. A log that was cut has the id of its topic."""
    found = Positions()
    claims = [
        Claim(TopicPartition("mine", "new", 0), 1, 0, 0, False, 0),
        Claim(TopicPartition("cut", "same#2", 0), 1, 0, 0, False, 0),
        Claim(TopicPartition("without ids", "", 0), 1, 0, 0, False, 0),
    ]
    found.grant(claims, Tolerance(100, 0.5, 1_000))
    ends = {("mine", 0): 9, ("cut", 0): 8, ("without ids", 0): 7, ("gone", 0): 6, ("mine", 1): 5}
    look = BrokerSnapshot(
        0.0, {"mine": "old", "cut": "same", "without ids": "", "gone": "id"}, ends
    )
    assert select_claimed_ends(look, found) == {("cut", 0): 8, ("without ids", 0): 7}
    look = BrokerSnapshot(0.0, {"mine": "new"}, ends)
    assert select_claimed_ends(look, found) == {("mine", 0): 9}


ROOMY = Limits(1_000, 1 << 30)


def sized(size: int, offset: int = 0) -> Message:
    """A good message of exactly this number of bytes with its key."""
    padding = size - message(with_data(b'{"a":""}')).size
    found = message(with_data(b'{"a":"' + b"x" * padding + b'"}'), offset)
    assert found.size == size
    return found


def filled(*messages: Message, limits: Limits = ROOMY) -> Batch:
    batch = Batch(limits)
    for each in messages:
        assert batch.fits(each.size)
        batch.add(decode_message(each, WINDOW), SOURCE, each.offset)
    return batch


def test_bytes_are_a_limit_headers_counted() -> None:
    limits = Limits(1_000, 2_000)
    assert filled(sized(1_000), limits=limits).fits(sized(1_000, 1).size)
    assert not filled(sized(1_000), limits=limits).fits(sized(1_001, 1).size)
    laden = message(sized(900).value, 1, headers=(("name", b"x" * 97), ("none", None)))
    assert laden.size == 900 + len("name") + 97 + len("none")
    assert not filled(sized(1_000), limits=limits).fits(laden.size)


def test_giants_travel_alone() -> None:
    small, giant = sized(GIANT_BYTES), sized(GIANT_BYTES + 1)
    assert filled(small).fits(small.size)
    assert not filled(small).fits(giant.size)
    assert not filled(giant).fits(small.size)
    assert filled(giant).fits(giant.size)


def test_kinds_come_in_the_order_of_declaration() -> None:
    """Two writers must lock tables in the same order."""
    batch = Batch(ROOMY)
    for number, entity in enumerate(reversed(ENTITIES)):
        source = TopicPartition(entity.topics[0], "id", 0)
        body = message(value(productInstanceId="A1"), number, entity.topics[0])
        batch.add(decode_message(body, WINDOW), source, number)
    assert batch.list_entities() == [entity.name for entity in ENTITIES]


BODIES = st.sampled_from([value(), value(version=8), b"bad", EXPIRED, sized(GIANT_BYTES + 1).value])
STEPS = st.lists(st.tuples(st.sampled_from([0, 0, 0, 0, 0, 1, 3]), BODIES), max_size=12)


@given(STEPS, st.integers(1, 8), st.sampled_from([1, 2_000, 1 << 30]), st.booleans())
def test_batch_adds_a_run_like_single_messages(
    steps: list[tuple[int, bytes]], rows: int, size: int, skipping: bool
) -> None:
    """Up to a hole that nobody explained, to what does not fit, and to the first bad message."""
    messages, offset = [], 5
    for hole, body in steps:
        offset += hole
        messages.append(Message(TOPIC, 0, offset, offset * 7 % 5, b"key", body))
        offset += 1
    decoded = [decode_message(each, WINDOW) for each in messages]
    one_by_one, at_once = Batch(Limits(rows, size)), Batch(Limits(rows, size))
    expected, added, reject = 5, 0, None
    for each in messages:
        hole = each.offset != expected
        if (hole and not skipping) or not one_by_one.fits(each.size):
            break
        gaps = (OffsetGap(expected, each.offset, lost=False),) if hole else ()
        reject = one_by_one.add(decode_message(each, WINDOW), SOURCE, expected, gaps)
        expected, added = each.offset + 1, added + 1
        if reject is not None:
            break
    assert at_once.add_run(decoded, SOURCE, 5, skipping) == (added, reject)
    for batch in (one_by_one, at_once):
        batch.arrange()
    for name in ("messages", "bytes", "rows", "keys", "expired", "rejects", "progress"):
        assert getattr(one_by_one, name) == getattr(at_once, name)
    assert [each.fits(sized(900).size) for each in (one_by_one, at_once)] in (
        [True] * 2,
        [False] * 2,
    )


def test_it_keeps_the_last_names_and_at_most_twice_as_many() -> None:
    memory = FingerprintCache(10)
    for number in range(100):
        memory.update({str(number): number})
        assert all(memory.get(str(n)) == n for n in range(max(0, number - 9), number + 1))
        assert sum(memory.get(str(n)) is not None for n in range(number + 1)) <= 20
    assert memory.get("0") is None


PATIENCE = 15.0


@pytest.fixture
def patience() -> StuckMemberTimer:
    """Of a member that lost its partitions at 0, maybe because its brokers went away."""
    made = StuckMemberTimer(PATIENCE, -100.0)
    made.end()
    made.begin(0.0, answer=False)
    return made


def until_stuck(patience: StuckMemberTimer, since: float, away_until: float = 0.0) -> float:
    """When it counts as stuck, asked every half second."""
    now = since
    while True:
        now += 0.5
        if patience.is_due(now):
            if now < away_until:
                patience.note_unanswered(now)
            elif patience.note_answered(now):
                return now


@pytest.mark.parametrize("outage", [10.0, 60.0, 3600.0])
def test_the_wait_after_an_outage_does_not_depend_on_its_length(
    patience: StuckMemberTimer, outage: float
) -> None:
    stuck = until_stuck(patience, 0.0, away_until=outage)
    assert stuck <= outage + ASK_AGAIN_SECONDS + PATIENCE + 1
    assert stuck >= outage + PATIENCE


def test_each_time_the_wait_is_twice_as_long() -> None:
    patience = StuckMemberTimer(PATIENCE, 0.0)
    first = until_stuck(patience, 0.0)
    second = until_stuck(patience, first)
    assert until_stuck(patience, second) - second == 2 * (second - first) == 4 * first
    patience.end()
    patience.begin(1000.0)
    assert until_stuck(patience, 1000.0) == 1000.0 + PATIENCE


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(client.time, "monotonic", lambda: now[0])
    return now


def says(throttled: ThrottledLog, text: str) -> bool:
    return throttled.filter(logging.LogRecord("x", logging.WARNING, "", 0, text, None, None))


def test_the_same_is_said_again_only_after_a_while(hands: list[float]) -> None:
    throttled = ThrottledLog()
    assert says(throttled, "broker 1 down after 12 ms")
    assert not says(throttled, "broker 1 down after 13 ms")
    assert says(throttled, "broker is back")
    hands[0] = client.REPEAT_LOG_SECONDS
    assert says(throttled, "broker 1 down after 14 ms")


def test_jobs_run_in_order_and_give_what_they_return_or_raise() -> None:
    worker, done = WorkerThread("test"), []
    first = worker.submit(lambda: done.append(1))
    second = worker.submit(lambda: 1 // 0)
    third = worker.submit(lambda: (*done, 3))
    assert third.result(10) == (1, 3)
    assert first.result() is None
    with pytest.raises(ZeroDivisionError):
        second.result()
    assert worker.close(10)


def test_the_end_cancels_what_has_not_begun_in_time() -> None:
    worker, begun, go = WorkerThread("test"), Event(), Event()
    running = worker.submit(lambda: begun.set() or go.wait())
    waiting = worker.submit(lambda: "done")
    assert begun.wait(10)
    assert not worker.close(0)
    go.set()
    assert worker.close(10)
    assert running.result() is True
    assert waiting.cancelled()


AWAY = Unreachable(ck.KafkaException(ck.KafkaError(ck.KafkaError._TRANSPORT)))
SOON, LATER, HALTED = ("soon", 0), ("later", 0), ("halted", 0)


class Ends:
    """The consumer's source, as far as it is asked here: where its partitions end."""

    def get_high_watermark(self, partition: KafkaPartition) -> int:  # noqa: ARG002
        return 10_000


class RecordedForecast:
    """Stands for the HeartbeatWriter and keeps the forecast that was submitted last."""

    def __init__(self) -> None:
        self.outlooks: dict[Claim, Outlook] = {}

    def submit_forecast(
        self,
        outlooks: dict[Claim, Outlook],
        rate: float | None,  # noqa: ARG002
    ) -> None:
        self.outlooks = outlooks


class Clock:
    """time, of which a test moves the hands."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return time.time()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(loss_forecaster, "time", clock)
    return clock


def outlook(seconds: float) -> Outlook:
    log = Log(time.time(), 0, 1000, 1.0, 100.0)
    return Outlook(log, Forecast(time.time() + seconds, 1000, 0, 3600.0))


def positions() -> Positions:
    found = Positions()
    found.assign([SOON, LATER, HALTED], 0.0)
    tolerance = Tolerance(3, 0.7, 8)
    claims = (
        Claim(TopicPartition(topic, "", number), 1, 0, 0, topic == "halted", 0)
        for topic, number in (SOON, LATER, HALTED)
    )
    found.grant(claims, tolerance)
    return found


def create_forecaster_with_answer(
    answer: Mapping[KafkaPartition, Outlook] | Exception, clock: Clock
) -> tuple[Any, ...]:
    """Return a forecaster that has received `answer`, with its source, records and positions."""

    def ask(_: Mapping[KafkaPartition, int | None]) -> dict[KafkaPartition, Outlook]:
        if isinstance(answer, Exception):
            raise answer
        return {**answer}

    source, recorded, place = Ends(), RecordedForecast(), positions()
    forecaster: Any = LossForecaster(ask, recorded)  # type: ignore[arg-type]
    clock.now += 60
    forecaster.ask_when_due(source, place)
    future: Future[Any] = forecaster._asked
    future.exception(10)
    return forecaster, source, recorded, place


def test_what_the_brokers_say_is_recorded(clock: Clock) -> None:
    forecaster, source, recorded, place = create_forecaster_with_answer(
        {SOON: outlook(600), HALTED: outlook(3000)}, clock
    )
    forecaster.ask_when_due(source, place)
    assert {claim.source.topic for claim in recorded.outlooks} == {"soon", "halted"}


@pytest.mark.parametrize("error", [AWAY, ValueError("what is this?")])
def test_reading_goes_on_without_an_answer(error: Exception, clock: Clock) -> None:
    forecaster, source, recorded, place = create_forecaster_with_answer(error, clock)
    clock.now += 2
    forecaster.ask_when_due(source, place)
    assert recorded.outlooks == {}


def test_the_rate_is_measured_only_while_there_is_more_to_read(clock: Clock) -> None:
    forecaster, source, _, place = create_forecaster_with_answer({}, clock)
    source.get_high_watermark = lambda _: 100_000
    forecaster.ask_when_due(source, place)
    place.claimed[SOON].expected += 50_000
    clock.now += 10
    forecaster.ask_when_due(source, place)
    assert forecaster.reading_rate == 5_000.0
    source.get_high_watermark = lambda _: 50_001
    place.claimed[SOON].expected += 10
    clock.now += 10
    forecaster.ask_when_due(source, place)
    # Two partitions have all their messages left: the one that is read to its end does not count.
    assert forecaster.reading_rate != 5_000.0
    for each in place.claimed.values():
        each.expected = 50_001
    before = forecaster.reading_rate
    clock.now += 10
    forecaster.ask_when_due(source, place)
    assert forecaster.reading_rate == before
