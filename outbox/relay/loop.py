"""The relay's loop: beats, sends what waits, sleeps until PostgreSQL notifies it."""

import logging
import os
import socket
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import islice
from threading import Event
from time import monotonic, sleep

import psycopg

from outbox import database
from outbox.conf import Backoff, Conf
from outbox.database import Connection
from outbox.relay import membership, queue
from outbox.relay.membership import Fenced, Membership
from outbox.relay.queue import Due, DueReader, Failure, Outcome
from outbox.relay.sender import Sender
from outbox.status import FAILURE
from outbox.writer import CHANNEL

logger = logging.getLogger(__name__)

# A row that a writer has locked is tried again after this.
_LOCKED_SECONDS = 0.05
_CLEAN_SECONDS = 3_600.0
# A relay that sleeps notices within this time that it shall stop.
_STOP_SECONDS = 0.5
# Outcomes of earlier rounds that are written again at a time, if writers have locked their rows.
_LATE = 1_000
_OUTAGE = Backoff(0.1, 5.0)
# Newer than any: none of the document is sent.
_NO_VERSION = 2**31 - 1


@dataclass(slots=True)
class RelayLoop:
    """A relay for one database. stop: set it to have run() finish what is on its way and return."""

    conf: Conf
    alias: str
    stop: Event = field(default_factory=Event)
    # Nothing was sent for so many seconds: run() returns.
    until_idle: float | None = None
    _sender: Sender = field(init=False)
    _member: Membership = field(init=False)
    _reader: DueReader = field(default_factory=DueReader)
    # What Kafka has answered and the database does not know yet.
    _unsettled: dict[str, tuple[Outcome, float]] = field(default_factory=dict)
    _counts: Counter[str] = field(default_factory=Counter)
    _failures: int = 0
    _outages: int = 0
    _paused_until: float = 0.0
    _retry_at: float = 0.0
    _sent_at: float = field(default_factory=monotonic)
    _clean_at: float = 0.0
    _error: str = ""

    def __post_init__(self) -> None:
        self._sender = Sender(self.conf)
        self._member = Membership(f"{socket.gethostname()}:{os.getpid()}", self.conf.lease_seconds)

    def run(self) -> None:
        """Send until it is stopped, over outages of the database and of Kafka. Raises WrongSettings
        at once if Kafka's client does not take its settings."""
        self._sender.open()
        while not self.stop.is_set():
            try:
                with database.connect(self.alias) as connection:
                    self._serve(connection)
                    return
            except Fenced:
                logger.warning("silent for too long: others took over; beginning again")
                self._sender.abandon()
                self._member.forget()
                self._unsettled.clear()
            except psycopg.Error as error:
                self._failures += 1
                logger.warning("the database: %s", str(error).strip())
                self.stop.wait(_OUTAGE.pause(self._failures))

    def _serve(self, connection: Connection) -> None:
        for channel in (CHANNEL, membership.CHANNEL):
            connection.execute(f"LISTEN {channel}")
        self._member.join(connection)
        self._tick(connection)
        self._failures = 0
        while not self.stop.is_set() and not self._idle():
            if self._member.unbalanced:
                self._tick(connection)
            if not self._round(connection):
                self._sleep(connection)
        self._end(connection)
        self._member.add(connection, self._take_counts())
        self._member.leave(connection)

    def _end(self, connection: Connection) -> None:
        """Wait for the writers of what is confirmed, but not for ever."""
        until = monotonic() + self.conf.lease_seconds
        self._settle(connection, [*self._unsettled])
        while self._unsettled and monotonic() < until:
            sleep(_LOCKED_SECONDS)
            self._beat(connection)
            self._settle(connection, [*self._unsettled])

    def _tick(self, connection: Connection) -> None:
        # A relay that is always busy does not sleep.
        self._hear(connection, 0)
        self._beat(connection)
        self._member.balance(connection, {each.due.bucket for each, _ in self._unsettled.values()})
        self._member.add(connection, self._take_counts())
        queue.bring_nearer(connection, self._member.buckets, self.conf.retry_most_seconds)
        if 0 in self._member.buckets and monotonic() >= self._clean_at:
            queue.clean(connection, self.conf.keep_days, lambda: self._beat(connection))
            self._clean_at = monotonic() + _CLEAN_SECONDS

    def _beat(self, connection: Connection) -> None:
        self._member.beat(connection, (), self._error)

    def _round(self, connection: Connection) -> bool:
        """Send what is due. False if nothing was sent, or nothing can be sent now."""
        self._settle(connection, [*islice(self._unsettled, _LATE)])
        began = monotonic()
        if began < self._paused_until or not self._member.certain:
            return False
        retries = began >= self._retry_at
        found = self._reader.due(connection, self._member.buckets, self._known(), retries=retries)
        chains = self._reader.chains(connection, [*map(self._ahead, found)])
        outcomes = self._sender.send(chains, lambda: self._pulse(connection))
        outcomes += map(_missing, self._reader.missing)
        progress = any(each.sent > each.due.sent for each in outcomes)
        outcomes = self._judged(outcomes, progress)
        for outcome in outcomes:
            self._take(outcome)
        self._rest(outcomes, progress, monotonic() - began, retries=retries)
        self._settle(connection, [each.due.document for each in outcomes])
        return progress

    def _judged(self, outcomes: list[Outcome], progress: bool) -> list[Outcome]:
        """If versions time out again although Kafka answers, it is their partitions that take
        nothing. Then they fail, so that those of other partitions are not behind them."""
        late = [each for each in outcomes if each.failure and each.failure.late]
        again = self._outages or any(each.due.attempts for each in late)
        if not late or not again or not (progress or self._sender.answers()):
            return outcomes
        return [
            replace(each, failure=replace(each.failure, outage=False))
            if each.failure and each.failure.late
            else each
            for each in outcomes
        ]

    def _known(self) -> dict[str, int]:
        """Versions that need not be sent: Kafka has them, or their failure is not written yet."""
        return {
            key: _NO_VERSION if outcome.failure else outcome.sent
            for key, (outcome, _) in self._unsettled.items()
        }

    def _ahead(self, due: Due) -> Due:
        """The document as Kafka has it, which may be further than its row."""
        known = self._unsettled.get(due.document)
        return due if known is None else replace(due, sent=known[0].sent, attempts=0)

    def _take(self, outcome: Outcome) -> None:
        self._counts["sent"] += outcome.sent - outcome.due.sent
        failure = outcome.failure
        if failure is not None:
            self._counts[f"{FAILURE}{failure.reason}"] += 1
            if failure.outage:
                outcome = replace(outcome, failure=None)
        further = outcome.sent > outcome.due.sent
        if further or outcome.failure:
            backoff = Backoff(self.conf.retry_first_seconds, self.conf.retry_most_seconds)
            pause = backoff.pause(1 if further else outcome.due.attempts + 1)
            self._unsettled[outcome.due.document] = (outcome, pause)

    def _rest(
        self, outcomes: list[Outcome], progress: bool, seconds: float, *, retries: bool
    ) -> None:
        """After an outage nothing is sent for a while. If versions timed out in a round of so many
        seconds, rounds with retries take at most a third of the time."""
        errors = [each.failure for each in outcomes if each.failure and each.failure.outage]
        late = any(each.failure and each.failure.late for each in outcomes)
        if progress:
            self._sent_at = monotonic()
        if late and retries:
            self._retry_at = monotonic() + 2 * seconds
        self._outages = self._outages + 1 if errors or late else 0
        self._error = errors[0].text if errors else ""
        if errors:
            logger.warning("Kafka: %s (%s documents wait)", errors[0].text, len(errors))
            self._paused_until = monotonic() + _OUTAGE.pause(self._outages)

    def _settle(self, connection: Connection, documents: Iterable[str]) -> None:
        """Write what became of these documents. Those that a writer has locked come last then."""
        settled = {key: self._unsettled[key] for key in documents if key in self._unsettled}
        if settled and self._member.id is not None:
            written = queue.settle(connection, self._member.id, settled.values())
            for key in settled:
                late = self._unsettled.pop(key)
                if key not in written:
                    self._unsettled[key] = late

    def _pulse(self, connection: Connection) -> bool:
        """A beat while versions are on their way. The database may be away meanwhile."""
        if self._member.due:
            try:
                self._member.beat(connection, self._sender.in_hand, self._error)
            except psycopg.Error as error:
                logger.warning("no beat: %s", str(error).strip())
        return self._member.certain

    def _sleep(self, connection: Connection) -> None:
        """Until a version is recorded, or it is time for a beat."""
        longest = _LOCKED_SECONDS if self._unsettled else self.conf.lease_seconds / 5
        paused = self._paused_until - monotonic()
        if paused > 0:
            self.stop.wait(min(paused, longest))
            return
        until = monotonic() + longest
        heard = False
        while not heard and not self.stop.is_set() and (left := until - monotonic()) > 0:
            heard = self._hear(connection, min(left, _STOP_SECONDS))

    def _hear(self, connection: Connection, seconds: float) -> bool:
        """Whether PostgreSQL notifies the relay within this time. Takes all that is there."""
        heard = [each.channel for each in connection.notifies(timeout=seconds, stop_after=1)]
        if membership.CHANNEL in heard:
            self._member.hurried = True
        return bool(heard)

    def _idle(self) -> bool:
        return self.until_idle is not None and monotonic() - self._sent_at > self.until_idle

    def _take_counts(self) -> Counter[str]:
        self._counts["attempts"] += self._sender.attempts
        self._sender.attempts = 0
        counts, self._counts = +self._counts, Counter()
        return counts


def _missing(due: Due) -> Outcome:
    """A version that is not there stops its document: nothing is skipped silently."""
    text = f"version {due.sent + 1} is not in outbox_message"
    failure = Failure("MISSING", text)
    return Outcome(due, due.sent, due.waiting_since, failure)
