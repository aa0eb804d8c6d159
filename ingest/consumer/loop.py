"""The consumer's loop: polls and decodes on one thread while another writes.

There is no linger time. While the database works on one batch the next one fills, and it goes the
moment the first is done: quiet means batches of one, busy means full ones.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event
from typing import TypeVar

from history.search_keys import Fingerprint
from history.window import Window
from ingest import metrics
from ingest.consumer.background import Background, Probe
from ingest.consumer.breaker import Tolerance
from ingest.consumer.key_cache import BoundedCache
from ingest.consumer.positions import Held, Positions, place_of
from ingest.consumer.totals import Meter, Totals
from ingest.source.decode import Decode, decode
from ingest.source.kafka import Place, Source, Unreachable
from ingest.source.message import Message, TopicPartition
from ingest.store.batch import Batch, Gap, Limits
from ingest.store.ledger import Connection, Fenced
from ingest.store.retrying import Abandoned, RetryingWriter
from ingest.store.transaction import Written

logger = logging.getLogger(__name__)
T = TypeVar("T")

# Messages taken from Kafka at a time: few enough that two copies of them are no burden.
AT_ONCE = 500
# And after so many of them a look whether the database is free.
LOOK_EVERY = 20
WHILE_WRITING_SECONDS = 0.002
WHILE_IDLE_SECONDS = 0.2
# How long to wait for the writer before reading is paused.
PATIENCE_SECONDS = 0.5
# How long a fenced consumer listens for the rebalance that explains it before it claims anew.
AFTER_FENCED_SECONDS = 3.0
HAND_OVER_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Policy:
    """What a consumer is told. window gives the days to keep at the moment it is called;
    until_idle: return after so many seconds without a message."""

    limits: Limits
    tolerance: Tolerance
    window: Callable[[], Window]
    until_idle: float | None = None
    decode: Decode = decode


@dataclass(frozen=True, slots=True)
class _Flight:
    """The batch that is being written."""

    batch: Batch
    written: Future[Written]


class Consumer:
    """One member of the group. run() returns after stop(), or once idle for policy.until_idle."""

    def __init__(
        self,
        policy: Policy,
        open_source: Callable[
            [Callable[[list[Place]], None], Callable[[], None], Callable[[], None]], Source
        ],
        writer: RetryingWriter,
        probe: Probe,
    ) -> None:
        self._policy = policy
        self._writer = writer
        self._database = ThreadPoolExecutor(1, "database")
        self._background = Background(probe, self._note)
        self._positions = Positions()
        self._known: BoundedCache[Fingerprint] = BoundedCache()
        self._filling = self._new_batch()
        self._flight: _Flight | None = None
        self._window = policy.window()
        self._last_message = time.monotonic()
        self._stop = Event()
        self._meter = Meter()
        self._source = open_source(self._on_assigned, self._on_revoked, self._on_lost)

    def stop(self) -> None:
        """Finish what is in hand, and return from run(). Safe in a signal handler."""
        self._stop.set()

    def run(self) -> Totals:
        """Consume until told to stop. Outages of broker or database only make it wait."""
        try:
            while not self._stop.is_set() and not self._idle_long_enough():
                self._turn()
            self._meter.totals.halted = [
                f"{place[0]}[{place[1]}]" for place in self._positions.halted()
            ]
            self._hand_over()
        finally:
            self._writer.abandon()
            self._source.close()
            if self._flight is not None and not self._flight.written.done():
                self._writer.cut()
            self._database.shutdown(wait=True)
            self._writer.close()
        return self._meter.totals

    def _turn(self) -> None:
        """One round: note what was written, launch what is ready, read what has come."""
        self._land()
        self._window = self._policy.window()
        # Also while batch follows batch: one topic's backlog must not keep another halted.
        why = self._background.turn(self._source, self._positions, self._window)
        if why is not None:
            self._start_again(why)
        if self._flight is None and self._filling.messages:
            self._launch()
        if self._flight is None and self._positions.claim_due:
            self._claim()
        timeout = WHILE_IDLE_SECONDS if self._flight is None else WHILE_WRITING_SECONDS
        messages = self._source.poll(AT_ONCE, timeout)
        generation = self._positions.generation
        for number, message in enumerate(messages):
            if number % LOOK_EVERY == 0:
                self._land()
            if self._positions.generation != generation or not self._take(message):
                return  # the rest will be read again

    def _take(self, message: Message) -> bool:
        """Put one message into a batch, waiting for the writer where both batches are full. False:
        it was not taken, and what came after it must not be either, or there would be a gap."""
        place = (message.topic, message.partition)
        held = self._positions.held.get(place)
        if held is None or held.halted is not None:
            return True
        if message.offset < held.expected:
            self._positions.went_back.add(place)
            self._start_again(f"{place[0]}[{place[1]}] went back to offset {message.offset}")
            return False
        self._meter.begin()
        while not self._filling.takes(message):
            if not self._make_room():
                return False
        gaps = () if message.offset == held.expected else self._gaps(place, held, message.offset)
        source = held.claim.source
        reject = self._filling.add(message, source, held.expected, self._window, gaps)
        held.expected, held.fresh = message.offset + 1, False
        self._judge(place, held, message.offset, bad=reject is not None)
        return True

    def _judge(self, place: Place, held: Held, offset: int, bad: bool) -> None:
        """Stop reading a partition that brings too much that is bad."""
        if offset < held.claim.resume_until:
            return
        held.breaker.note(bad)
        why = held.breaker.tripped() if bad else None
        if why is not None and held.halted is None:
            logger.error("%s[%d] is halted at offset %d: %s", *place, held.expected, why)
            held.halted = why
            self._source.pause([place])
            self._background.halt(held, why)

    def _gaps(self, place: Place, held: Held, offset: int) -> tuple[Gap, ...]:
        """What lies between the expected offset and the one that came."""
        start = held.expected
        try:
            low, _ = self._source.watermarks(place)
        except Unreachable:
            low = offset if held.fresh else start
        there_from = min(max(low, start), offset)
        if there_from > start:
            logger.error(
                "%s[%d]: the broker deleted offsets %d to %d before they were read",
                *(*place, start, there_from - 1),
            )
        gaps = (Gap(start, there_from, True), Gap(there_from, offset, False))
        return tuple(gap for gap in gaps if gap.end > gap.start)

    def _launch(self) -> None:
        """Give the filled batch to the database's thread, and begin another."""
        batch = self._filling
        batch.arrange()
        self._known.update(batch.fingerprints)
        self._filling = self._new_batch()
        self._last_message = time.monotonic()
        held = [self._positions.held[place_of(source)] for source in batch.progress]
        claims = {each.claim.source: each.claim for each in held}
        high = {source: self._source.high_watermark(place_of(source)) for source in claims}
        self._writer.proceed()
        written = self._database.submit(self._writer.write, batch, claims, high)
        self._flight = _Flight(batch, written)

    def _land(self) -> None:
        """Take note of a written batch, if one is, once the next is on its way."""
        flight = self._flight
        if flight is None or not flight.written.done():
            return
        self._flight = None
        try:
            written = flight.written.result()
        except Fenced:
            self._start_again("another consumer moved the ledger", AFTER_FENCED_SECONDS)
            return
        except Abandoned:
            return
        if self._filling.messages:
            self._launch()
        self._meter.batch_written(flight.batch, written)
        for reject in written.rejects:
            place = (reject.message.topic, reject.message.partition)
            if (held := self._positions.held.get(place)) is not None:
                self._judge(place, held, reject.message.offset, bad=True)
        ends = {place_of(source): done.next for source, done in flight.batch.progress.items()}
        self._source.commit(ends)
        flight.batch.clear()

    def _make_room(self) -> bool:
        """Wait until the filling batch can go. False: what is held has changed meanwhile.

        Where that takes long, reading is paused and polling goes on: the group keeps its member.
        """
        if self._flight is None:
            self._launch()
            return True
        self._filling.arrange()
        generation = self._positions.generation
        if not _done(self._flight.written, PATIENCE_SECONDS):
            self._wait_paused(self._flight.written)
        self._land()
        return self._positions.generation == generation and not self._stop.is_set()

    def _wait_paused(self, written: Future[Written]) -> None:
        generation = self._positions.generation
        places = self._positions.reading()
        self._source.pause(places)
        metrics.PAUSED.set(1)
        while not _done(written, 0) and not self._stop.is_set():
            if self._source.poll(1, WHILE_IDLE_SECONDS):
                # A paused partition delivers nothing; should it, the ledger knows what was lost.
                self._start_again("a message came while paused")
            if self._positions.generation != generation:
                break
        else:
            self._source.resume(places)
        metrics.PAUSED.set(0)

    def _claim(self) -> None:
        """Ask the ledger from where to read each assigned partition, and start there."""
        places = self._positions.assigned or []
        went_back = self._positions.went_back
        generation = self._positions.generation
        try:
            ids = self._source.topic_ids({topic for topic, _ in places})
            marks = {place: self._source.watermarks(place) for place in places if place[0] in ids}
        except Unreachable as error:
            logger.warning("waiting for Kafka: %s", error)
            self._positions.let_go(1.0)
            return
        wanted = {
            TopicPartition(topic, ids[topic], n): (low, end if (topic, n) in went_back else None)
            for (topic, n), (low, end) in marks.items()
        }
        self._writer.proceed()
        claims = self._database.submit(self._writer.claim, wanted)
        while not _done(claims, WHILE_WRITING_SECONDS):
            self._source.poll(1, WHILE_WRITING_SECONDS)  # nothing is read now: only callbacks run
            if self._positions.generation != generation or self._stop.is_set():
                self._writer.abandon()
        if self._positions.generation != generation or self._stop.is_set():
            return
        self._positions.hold(claims.result(), self._policy.tolerance)
        # What was launched before may have come to nothing, and its keys with it.
        self._known = BoundedCache()
        self._filling = self._new_batch()
        self._source.start(self._positions.expected())
        self._source.pause(self._positions.halted())
        self._last_message = time.monotonic()
        metrics.PARTITIONS.set(len(self._positions.held))
        logger.info("reading %d partitions", len(self._positions.held))

    def _on_assigned(self, places: list[Place]) -> None:
        self._filling = self._new_batch()
        self._positions.assign(places)

    def _on_revoked(self) -> None:
        """Still ours: write and commit what is in hand, unless the database is away."""
        self._hand_over()
        self._filling = self._new_batch()
        self._positions.revoke()

    def _on_lost(self) -> None:
        """Not ours any more: what is in hand would be refused."""
        self._writer.abandon()
        self._filling = self._new_batch()
        self._positions.revoke()

    def _hand_over(self) -> None:
        """Write what is in hand within HAND_OVER_SECONDS, or leave it to whoever reads it next."""
        until = time.monotonic() + HAND_OVER_SECONDS
        for _ in range(2):
            if self._flight is not None:
                if not _done(self._flight.written, max(0.0, until - time.monotonic())):
                    self._writer.abandon()
                    break
                self._land()
            if self._filling.messages:
                self._launch()

    def _start_again(self, why: str, after: float = 0.0) -> None:
        """Drop what is in hand and claim anew; the ledger knows where to go on."""
        logger.warning("starting again from the ledger: %s", why)
        self._writer.abandon()
        self._filling = self._new_batch()
        self._source.start({})
        self._positions.let_go(after)

    def _new_batch(self) -> Batch:
        return Batch(self._policy.limits, self._policy.decode, self._known)

    def _note(self, job: Callable[[Connection], object]) -> None:
        self._database.submit(self._writer.note, job)

    def _idle_long_enough(self) -> bool:
        limit = self._policy.until_idle
        if limit is None or self._flight is not None or self._filling.messages:
            return False
        return self._positions.settled and time.monotonic() - self._last_message >= limit


def _done(future: Future[T], seconds: float) -> bool:
    """Whether a future is done, waiting up to so many seconds for it."""
    try:
        future.exception(seconds)
    except TimeoutError:
        return False
    return True
