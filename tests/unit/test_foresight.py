"""Which partitions the consumer holds back, for how long, and when it lets them go."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any

import confluent_kafka as ck
import pytest

from ingest.consumer import foresight
from ingest.consumer.foresight import FREE_SECONDS, HOLD_SECONDS, Foresight
from ingest.consumer.positions import Positions, Tolerance
from ingest.forecast import TIME, Forecast, Log, Outlook
from ingest.source.client import Unreachable
from ingest.source.message import KafkaPartition, TopicPartition
from ingest.store.batch import Claim
from ingest.store.ledger import Foreseen

AWAY = Unreachable(ck.KafkaException(ck.KafkaError(ck.KafkaError._TRANSPORT)))
SOON, LATER, HALTED = ("soon", 0), ("later", 0), ("halted", 0)


class Pauses:
    """The consumer's source, as far as it is asked here: which partitions are paused."""

    def __init__(self) -> None:
        self.paused: set[KafkaPartition] = set()

    def pause(self, partitions: Iterable[KafkaPartition]) -> None:
        self.paused |= set(partitions)

    def resume(self, partitions: Iterable[KafkaPartition]) -> None:
        self.paused -= set(partitions)

    def high_watermark(self, partition: KafkaPartition) -> int:  # noqa: ARG002
        return 10_000


class Recorded:
    """The beats: what was recorded last."""

    def __init__(self) -> None:
        self.found: dict[Claim, Foreseen] = {}

    def foresee(self, found: dict[Claim, Foreseen], rate: float | None) -> None:  # noqa: ARG002
        self.found = found


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
    monkeypatch.setattr(foresight, "time", clock)
    return clock


def outlook(seconds: float) -> Outlook:
    log = Log(time.time(), 0, 1000, 1.0, 100.0)
    return Outlook(log, Forecast(time.time() + seconds, TIME, 1000, 0, 3600.0))


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


def asked(answer: Mapping[KafkaPartition, Outlook] | Exception, clock: Clock) -> tuple[Any, ...]:
    """A foresight that has this answer."""

    def ask(_: Mapping[KafkaPartition, int | None]) -> dict[KafkaPartition, Outlook]:
        if isinstance(answer, Exception):
            raise answer
        return {**answer}

    source, recorded, place = Pauses(), Recorded(), positions()
    mine: Any = Foresight(ask, recorded)  # type: ignore[arg-type]
    clock.now += 60
    mine.turn(source, place)
    future: Future[Any] = mine._asked
    future.exception(10)
    return mine, source, recorded, place


def test_what_has_time_waits_but_never_for_long(clock: Clock) -> None:
    """Halted partitions are never resumed by it."""
    answer = {SOON: outlook(600), LATER: outlook(3000), HALTED: outlook(3000)}
    mine, source, recorded, place = asked(answer, clock)
    source.pause([HALTED])
    waited = 0
    for _ in range(200):
        clock.now += 1
        mine.hold(source, place)
        assert SOON not in source.paused
        assert HALTED in source.paused
        assert (LATER in source.paused) == (LATER in place.held)
        waited += LATER in place.held
    share = HOLD_SECONDS / (HOLD_SECONDS + FREE_SECONDS)
    assert 0.5 < waited / 200 <= share + 0.05
    assert {claim.source.topic for claim in recorded.found} == {"soon", "later", "halted"}
    assert not place.settled or not place.held


def test_it_ends_when_the_endangered_one_is_read(clock: Clock) -> None:
    mine, source, _, place = asked({SOON: outlook(600), LATER: outlook(3000)}, clock)
    clock.now += 2
    mine.hold(source, place)
    assert place.held == {LATER}
    assert place.reading() == [SOON]
    place.claimed[SOON].expected = 10_000
    clock.now += 2
    mine.hold(source, place)
    assert (place.held, source.paused) == (set(), set())


def test_nothing_waits_for_a_halted_partition(clock: Clock) -> None:
    """It is not read, so that to wait for it would gain nothing."""
    mine, source, _, place = asked({HALTED: outlook(60), LATER: outlook(3000)}, clock)
    for _ in range(10):
        clock.now += 2
        mine.hold(source, place)
        assert (place.held, source.paused) == (set(), set())


@pytest.mark.parametrize("seconds", [(7200, 20_000), (600, 620)])
def test_nothing_waits_where_there_is_time_or_all_are_alike(
    seconds: tuple[float, float], clock: Clock
) -> None:
    mine, source, _, place = asked({SOON: outlook(seconds[0]), LATER: outlook(seconds[1])}, clock)
    clock.now += 2
    mine.hold(source, place)
    assert (place.held, source.paused) == (set(), set())


@pytest.mark.parametrize("error", [AWAY, ValueError("what is this?")])
def test_reading_goes_on_without_an_answer(error: Exception, clock: Clock) -> None:
    mine, source, recorded, place = asked(error, clock)
    clock.now += 2
    mine.hold(source, place)
    assert (place.held, recorded.found) == (set(), {})


def test_the_reason_is_a_sentence() -> None:
    assert str(AWAY) == "Local: Broker transport failure"


def test_the_rate_is_measured_only_while_there_is_more_to_read(clock: Clock) -> None:
    mine, source, _, place = asked({}, clock)
    source.high_watermark = lambda _: 100_000
    mine.turn(source, place)
    place.claimed[SOON].expected += 50_000
    clock.now += 10
    mine.turn(source, place)
    assert mine.reading_rate == 5_000.0
    source.high_watermark = lambda _: 50_001
    place.claimed[SOON].expected += 10
    clock.now += 10
    mine.turn(source, place)
    # Two partitions have all their messages left: the one that is read to its end does not count.
    assert mine.reading_rate != 5_000.0
    for each in place.claimed.values():
        each.expected = 50_001
    before = mine.reading_rate
    clock.now += 10
    mine.turn(source, place)
    assert mine.reading_rate == before
