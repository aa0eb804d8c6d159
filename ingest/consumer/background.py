"""What the consumer does on the side: notes lag, looks after halted partitions and topic ids."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from threading import Thread

import psycopg

from history.window import Window
from ingest import metrics
from ingest.consumer.breaker import Tolerance
from ingest.consumer.positions import Held, Positions
from ingest.source.decode import Decode, Expired, Rejected, decode
from ingest.source.kafka import Place, Source, Unreachable
from ingest.source.message import Message
from ingest.store import ledger
from ingest.store.ledger import Claim, Connection

logger = logging.getLogger(__name__)

BEAT_SECONDS = 5.0
PEEK_MESSAGES = 20

Peek = Callable[[Place, int, int], list[Message]]
Ends = Callable[[list[Place]], dict[Place, int]]


def cause_gone(
    messages: list[Message], window: Window, tolerance: Tolerance, decode: Decode = decode
) -> bool:
    """Whether these messages are good enough to go on: some there, and fewer bad than tolerated."""
    bad = 0
    for message in messages:
        try:
            decode(message, window)
        except Rejected:
            bad += 1
        except Expired:
            pass
    return bool(messages) and bad < tolerance.ratio * len(messages)


class Probe:
    """Finds out whether a halted partition may go on: somebody said so, or what comes next or
    what came last is good again."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        peek: Peek,
        ends: Ends,
        tolerance: Tolerance,
        decode: Decode = decode,
    ) -> None:
        self._connect = connect
        self._peek = peek
        self._ends = ends
        self._tolerance = tolerance
        self._decode = decode

    def __call__(self, place: Place, claim: Claim, expected: int, window: Window) -> int | None:
        """The offset before which bad messages are accepted; None: not yet.

        Where what comes next is good no bad ones are accepted beyond the limits: they may come
        again. Where only what came last is good, the bad ones before it are.
        """
        try:
            end = self._ends([place]).get(place, expected)
            with self._connect() as connection:
                # A paused partition is not fetched, so nobody else knows how far it reaches.
                ledger.heartbeat(connection, {claim: end})
                allowed = ledger.resume_until(connection, claim)
            if allowed > expected:
                return allowed
            if self._good(place, expected, window):
                return expected
            if self._good(place, max(expected, end - PEEK_MESSAGES), window):
                return end
        except (Unreachable, psycopg.Error) as error:
            logger.warning("%s[%d] stays halted: %s", *place, error)
        return None

    def _good(self, place: Place, start: int, window: Window) -> bool:
        messages = self._peek(place, start, PEEK_MESSAGES)
        return cause_gone(messages, window, self._tolerance, self._decode)


class Background:
    """Called from the consumer's loop; never waits. `note` runs a job on the database's thread."""

    def __init__(
        self,
        probe: Probe,
        note: Callable[[Callable[[Connection], object]], object],
    ) -> None:
        self._probe = probe
        self._note = note
        self._probes: dict[Place, Future[int | None]] = {}
        self._waiting: SimpleQueue[Callable[[], None]] = SimpleQueue()
        # A daemon: a look may wait for brokers that are gone, and the end must not wait for it.
        Thread(target=self._look, name="probe", daemon=True).start()
        self._due = 0.0

    def turn(self, source: Source, positions: Positions, window: Window) -> str | None:
        """One look, every few seconds. Returns why everything must be claimed anew, or None."""
        if time.monotonic() < self._due or not positions.held:
            return None
        self._due = time.monotonic() + BEAT_SECONDS
        highs = {place: source.high_watermark(place) for place in positions.held}
        metrics.lag({p: high - positions.held[p].expected for p, high in highs.items() if high})
        metrics.halted(positions.halted())
        watermarks = {positions.held[place].claim: high for place, high in highs.items()}
        self._note(partial(ledger.heartbeat, watermarks=watermarks))
        if self._look_after_halted(positions, window):
            return "a halted partition goes on"
        if self._topic_made_again(source, positions):
            return "a topic was made again"
        return None

    def halt(self, held: Held, why: str) -> None:
        """Write down that a partition's reading has stopped."""
        self._note(partial(ledger.halt, claims=[held.claim], why=why))

    def _look(self) -> None:
        while True:
            self._waiting.get()()

    def _look_after_halted(self, positions: Positions, window: Window) -> bool:
        released = False
        for place, held in positions.halted().items():
            future = self._probes.get(place)
            if future is not None and future.done():
                del self._probes[place]
                until = future.result()
                if until is not None:
                    logger.warning(
                        "%s[%d] goes on; bad messages before %d are quarantined", *place, until
                    )
                    self._note(partial(ledger.resume, held=held.claim, until=until))
                    released = True
            elif future is None:
                self._probes[place] = self._soon(
                    partial(self._probe, place, held.claim, held.expected, window)
                )
        return released

    def _soon(self, look: Callable[[], int | None]) -> Future[int | None]:
        future: Future[int | None] = Future()

        def run() -> None:
            try:
                future.set_result(look())
            except BaseException as error:
                future.set_exception(error)

        self._waiting.put(run)
        return future

    @staticmethod
    def _topic_made_again(source: Source, positions: Positions) -> bool:
        ids = source.ask_topic_ids({topic for topic, _ in positions.held})
        return any(
            ids.get(topic, held.claim.source.broker_id) != held.claim.source.broker_id
            for (topic, _), held in positions.held.items()
        )
