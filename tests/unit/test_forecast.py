"""The forecast of losses, against a model of how Apache Kafka rolls and deletes segments."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from ingest.forecast.catch_up import SMALL_UNREAD, Backlog, catch_up, to_hold
from ingest.forecast.facts import Log, Retention, Unread
from ingest.forecast.loss import DELETED, DOUBT, SIZE, TIME, Forecast, forecast, segment_end

HOUR = 3600.0
RATE = 10
EIGHT_HOURS = Retention(8 * HOUR, None, 7 * 24 * HOUR, 1 << 30)


@dataclass
class Segment:
    base: int
    times: list[float] = field(default_factory=list)


@dataclass
class Model:
    """A partition at a broker that looks at its segments whenever it is asked."""

    retention: Retention
    size: int
    segments: list[Segment] = field(default_factory=lambda: [Segment(0)])

    @property
    def start(self) -> int:
        return self.segments[0].base

    @property
    def end(self) -> int:
        return self.segments[-1].base + len(self.segments[-1].times)

    def time(self, offset: int) -> float:
        segment = next(s for s in reversed(self.segments) if s.base <= offset)
        return segment.times[offset - segment.base]

    def append(self, at: float) -> None:
        last = self.segments[-1]
        full = (len(last.times) + 1) * self.size > self.retention.segment_bytes
        if last.times and (full or at - last.times[0] > self.retention.segment_seconds):
            self.segments.append(Segment(self.end))
        self.segments[-1].times.append(at)

    def delete(self, now: float) -> None:
        limits = self.retention
        if limits.seconds is not None:
            while self.segments[0].times and now - self.segments[0].times[-1] > limits.seconds:
                self._delete_first()
        if limits.bytes is not None:
            over = sum(len(s.times) for s in self.segments) * self.size - limits.bytes
            while over - (oldest := len(self.segments[0].times) * self.size) >= 0 and oldest:
                over -= oldest
                self._delete_first()

    def _delete_first(self) -> None:
        if len(self.segments) == 1:
            self.segments.append(Segment(self.end))
        del self.segments[0]

    def forecast(self, now: float, next_: int, rate: float) -> Forecast:
        log = Log(now, self.start, self.end, rate, self.size)
        if not self.start <= next_ < self.end:
            return forecast(self.retention, log, Unread(next_))
        unread = Unread(next_, self.time(next_), self.time(self.start))
        last = min(self.end, int(segment_end(self.retention, log, unread))) - 1
        newest = self.time(max(next_, last))
        unread = Unread(next_, self.time(next_), self.time(self.start), newest)
        return forecast(self.retention, log, unread)


@given(
    seconds=st.none() | st.integers(50, 400),
    kept=st.none() | st.integers(30, 400),
    held=st.integers(20, 80),
    segment_seconds=st.integers(20, 2000),
    written=st.integers(100, 500),
    share=st.floats(0, 0.99),
)
@example(seconds=60, kept=None, held=50, segment_seconds=2000, written=200, share=0.0)
@example(seconds=60, kept=None, held=50, segment_seconds=20, written=200, share=0.5)
@example(seconds=None, kept=100, held=50, segment_seconds=2000, written=300, share=0.3)
@settings(max_examples=60, deadline=None)
def test_the_broker_deletes_when_the_forecast_says(
    seconds: int | None, kept: int | None, held: int, segment_seconds: int, written: int,
    share: float,
) -> None:  # fmt: skip
    """RATE messages a second. The limits are in seconds of that: the oldest unread message is gone
    within 20% of the forecast, or within the time that the whole messages of segments make. Of the
    first part of a segment the forecast may be too early."""
    assume(seconds is not None or kept is not None)
    second_bytes = RATE * 100
    limits = Retention(
        None if seconds is None else float(seconds),
        None if kept is None else kept * second_bytes,
        float(segment_seconds),
        held * second_bytes,
    )
    model = Model(limits, 100)
    for number in range(written * RATE):
        model.append(number / RATE)
        model.delete(number / RATE)
    now = (written * RATE - 1) / RATE
    next_ = model.start + int((model.end - model.start) * share)
    said = model.forecast(now, next_, float(RATE))
    assert said.at is not None
    segment = next(s for s in reversed(model.segments) if s.base <= next_)
    first_part = next_ - segment.base <= 2 * DOUBT * held * RATE

    number = written * RATE
    while model.start <= next_:
        model.append(number / RATE)
        model.delete(number / RATE)
        number += 1
    gone = (number - 1) / RATE
    late, allowed = said.at - gone, max(3.0, 0.2 * (gone - now))
    assert late <= allowed, (said, gone, now)
    assert late >= -allowed or first_part, (said, gone, now)


@given(unread=st.integers(0, 40), idle=st.floats(0, 50), rate=st.floats(0, 5))
def test_a_message_is_never_gone_before_its_time(unread: int, idle: float, rate: float) -> None:
    """Whatever comes, nothing younger than retention.ms is deleted where size is no limit."""
    model = Model(Retention(60.0, None, 30.0, 10_000), 1000)
    for second in range(100):
        model.append(float(second))
        model.delete(float(second))
    now = 99.0 + idle
    model.delete(now)
    said = model.forecast(now, model.end - unread, rate)
    assert said.at is not None
    if said.by != DELETED:
        oldest = model.time(model.end - unread) if said.unread else now
        assert said.at >= min(oldest + 60.0, now + 60.0)


@pytest.mark.parametrize(
    ("retention", "by", "seconds"),
    [
        (EIGHT_HOURS, TIME, 8 * HOUR),
        # 5 GB at 1 MB/s, of which 1 GB is there
        (Retention(None, 5_000_000_000, 7 * 24 * HOUR, 1), SIZE, 4000.0),
        (Retention(None, None, HOUR, 1 << 30), "", None),
        (Retention(60.0, 1, HOUR, 1 << 30, deletes=False, compacts=True), "", None),
    ],
)
def test_each_limit(retention: Retention, by: str, seconds: float | None) -> None:
    log = Log(at=0.0, start=0, end=1_000_000, arriving=1000.0, message_bytes=1000.0)
    closed = Unread(0, oldest_at=0.0, start_at=0.0, segment_at=0.0)
    if retention is EIGHT_HOURS:
        # The segment is full after 1,073,741 messages.
        seconds = 8 * HOUR + (2**30 / 1000 - 1_000_000) / 1000
    said = forecast(retention, log, closed)
    assert said.by == by
    assert said.at == (None if seconds is None else pytest.approx(seconds, rel=1e-3))


def test_a_silent_partition_loses_by_time_but_never_by_size() -> None:
    log = Log(at=1000.0, start=0, end=10, arriving=0.0, message_bytes=100.0)
    said = forecast(Retention(60.0, 1_000, HOUR, 1 << 20), log, Unread(0, 990.0, 990.0, 999.0))
    assert (said.at, said.by) == (1059.0, TIME)


def test_what_is_gone_is_said_at_once() -> None:
    log = Log(at=1000.0, start=50, end=60, arriving=1.0, message_bytes=100.0)
    said = forecast(EIGHT_HOURS, log, Unread(20))
    assert (said.at, said.by, said.deleted, said.unread) == (1000.0, DELETED, 30, 10)


def test_all_read_says_how_long_the_next_message_is_kept() -> None:
    log = Log(at=1000.0, start=0, end=60, arriving=1.0, message_bytes=None)
    said = forecast(EIGHT_HOURS, log, Unread(60))
    assert (said.at, said.unread, said.kept) == (1000.0 + 8 * HOUR, 0, 8 * HOUR)


def test_unknown_sizes_make_the_forecast_too_early_never_too_late() -> None:
    log = Log(at=1000.0, start=0, end=60, arriving=1.0)
    known = Log(at=1000.0, start=0, end=60, arriving=1.0, message_bytes=100.0)
    unread = Unread(0, 900.0, 900.0, 900.0)
    late = forecast(EIGHT_HOURS, known, unread).at
    assert late is not None
    assert forecast(EIGHT_HOURS, log, unread).at == 900.0 + 8 * HOUR < late


def test_times_that_nobody_knows_give_no_time_limit() -> None:
    log = Log(at=1000.0, start=0, end=60, arriving=0.0, message_bytes=100.0)
    assert forecast(EIGHT_HOURS, log, Unread(0)).at is None


@pytest.mark.parametrize(
    "missing",
    ["cleanup.policy", "retention.ms", "retention.bytes", "segment.ms", "segment.bytes"],
)
def test_a_configuration_that_is_not_complete_is_none(missing: str) -> None:
    given_ = {
        "cleanup.policy": "compact, delete",
        "retention.ms": "60000",
        "retention.bytes": "-1",
        "segment.ms": "1000",
        "segment.bytes": "1048576",
    }
    assert Retention.of(given_) == Retention(60.0, None, 1.0, 1_048_576, True, True)
    del given_[missing]
    assert Retention.of(given_) is None


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
def test_catching_up_goes_by_danger_and_ends_with_all_read(
    backlogs: dict[int, Backlog], rate: float
) -> None:
    took = catch_up(backlogs, rate)
    assert took.keys() == backlogs.keys()
    left = {place: each for place, each in backlogs.items() if each.unread}
    for place, each in left.items():
        for other, its in left.items():
            assert each.seconds >= its.seconds or took[place] <= took[other]
    if left:
        net = rate - sum(each.arriving for each in backlogs.values())
        total = sum(each.unread for each in left.values())
        assert max(took[p] for p in left) == (pytest.approx(total / net) if net > 0 else inf)


@given(BACKLOGS)
def test_what_is_held_back_is_safer_than_what_is_read(backlogs: dict[int, Backlog]) -> None:
    held = set(to_hold(backlogs))
    if not any(each.endangered for each in backlogs.values()):
        assert not held
        return
    read = backlogs.keys() - held
    assert any(backlogs[place].endangered for place in read)
    large = {place for place in read if backlogs[place].unread > SMALL_UNREAD}
    assert all(backlogs[a].seconds > backlogs[b].seconds for a in held for b in large)
    assert all(backlogs[place].unread > SMALL_UNREAD for place in held)


def test_enough_time_holds_nothing_back() -> None:
    assert not to_hold({0: Backlog(10**6, 1.0, 2 * HOUR, 8 * HOUR), 1: Backlog(10, 1.0, 3 * HOUR)})
    # A topic that is kept for ten minutes is not endangered as long as five are left.
    assert not to_hold({0: Backlog(10, 1.0, 301.0, 600.0), 1: Backlog(10, 1.0, inf)})
    assert to_hold({0: Backlog(10, 1.0, 299.0, 600.0), 1: Backlog(5000, 1.0, inf)}) == {1}
    # A live topic that is read to its end but for some messages.
    assert not to_hold({0: Backlog(10, 1.0, 299.0, 600.0), 1: Backlog(10, 1.0, inf)})
