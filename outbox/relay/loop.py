"""The loop of a relay: writes its beat, sends versions that wait, and sleeps until notified."""

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

from outbox.conf import Backoff, OutboxConf
from outbox.database import sessions
from outbox.database.sessions import Connection
from outbox.operations.status import FAILURE_PREFIX
from outbox.recording.writer import CHANNEL
from outbox.relay import membership, queue
from outbox.relay.membership import LeaseLostError, RelayMembership
from outbox.relay.queue import DueDocument, DueReader, SendFailure, SendOutcome
from outbox.relay.sender import VersionSender

logger = logging.getLogger(__name__)

# After this time, a row is tried again that a writer had locked.
_LOCKED_SECONDS = 0.05
_CLEAN_SECONDS = 3_600.0
# A sleeping relay notices within this time that it should stop.
_STOP_SECONDS = 0.5
# How many outcomes of earlier rounds are written at a time. These are outcomes that could not be
# written before, because writers had locked the rows.
_UNSETTLED_AT_A_TIME = 1_000
_OUTAGE = Backoff(0.1, 5.0)
# A number above all version numbers, with which no version of a document is sent.
_SKIP_DOCUMENT = 2**31 - 1


@dataclass(slots=True)
class RelayLoop:
    """A relay for one database.

    Set the event `stop` to make `run` finish the versions that it is sending, and return.
    """

    conf: OutboxConf
    alias: str
    stop: Event = field(default_factory=Event)
    # After how many seconds without a sent version `run` returns. None: never.
    until_idle: float | None = None
    _sender: VersionSender = field(init=False)
    _member: RelayMembership = field(init=False)
    _reader: DueReader = field(default_factory=DueReader)
    # By document, the outcome that is not written to the database yet, and the pause after it.
    _unsettled: dict[str, tuple[SendOutcome, float]] = field(default_factory=dict)
    _counts: Counter[str] = field(default_factory=Counter)
    _failures: int = 0
    _outages: int = 0
    _paused_until: float = 0.0
    _retry_at: float = 0.0
    _sent_at: float = field(default_factory=monotonic)
    _clean_at: float = 0.0
    _error: str = ""

    def __post_init__(self) -> None:
        self._sender = VersionSender(self.conf)
        self._member = RelayMembership(
            f"{socket.gethostname()}:{os.getpid()}", self.conf.lease_seconds
        )

    def run(self) -> None:
        """Send versions until `stop` is set.

        The loop survives outages of the database and of Kafka.

        Raises:
            WrongSettingsError: Kafka's client refuses its settings. Raised before anything is sent.
        """
        self._sender.start_client()
        while not self.stop.is_set():
            try:
                with sessions.connect(self.alias) as connection:
                    self._run_connected(connection)
                    return
            except LeaseLostError:
                logger.warning(
                    "this relay wrote no heartbeat for too long, so other relays took over; joining"
                    " again"
                )
                self._sender.abandon_sends()
                self._member.reset_identity()
                self._unsettled.clear()
            except psycopg.Error as error:
                self._failures += 1
                logger.warning(
                    "the database failed: %s; the relay will try again", str(error).strip()
                )
                self.stop.wait(_OUTAGE.choose_pause(self._failures))

    def _run_connected(self, connection: Connection) -> None:
        for channel in (CHANNEL, membership.CHANNEL):
            connection.execute(f"LISTEN {channel}")
        self._member.join_relays(connection)
        self._do_periodic_work(connection)
        self._failures = 0
        while not self.stop.is_set() and not self._is_idle_long_enough():
            if self._member.is_balancing_due:
                self._do_periodic_work(connection)
            if not self._send_due(connection):
                self._wait_for_work(connection)
        self._settle_before_leaving(connection)
        self._member.add_counts(connection, self._take_counts())
        self._member.leave_relays(connection)

    def _settle_before_leaving(self, connection: Connection) -> None:
        """Write the outcomes of sending that are not in the database yet.

        If writers have locked the rows, retry for at most OUTBOX["LEASE_SECONDS"].
        """
        until = monotonic() + self.conf.lease_seconds
        self._settle_outcomes(connection, [*self._unsettled])
        while self._unsettled and monotonic() < until:
            sleep(_LOCKED_SECONDS)
            self._write_beat(connection)
            self._settle_outcomes(connection, [*self._unsettled])

    def _do_periodic_work(self, connection: Connection) -> None:
        # A relay that is always busy never sleeps, so it receives notifications here.
        self._receive_notifications(connection, 0)
        self._write_beat(connection)
        self._member.balance_buckets(
            connection, {outcome.due.bucket for outcome, _ in self._unsettled.values()}
        )
        self._member.add_counts(connection, self._take_counts())
        queue.limit_next_attempts(connection, self._member.buckets, self.conf.retry_most_seconds)
        if 0 in self._member.buckets and monotonic() >= self._clean_at:
            queue.truncate_expired_messages(
                connection, self.conf.keep_days, lambda: self._write_beat(connection)
            )
            self._clean_at = monotonic() + _CLEAN_SECONDS

    def _write_beat(self, connection: Connection) -> None:
        self._member.write_beat(connection, (), self._error)

    def _send_due(self, connection: Connection) -> bool:
        """Send due versions. Return whether Kafka has confirmed at least one version."""
        self._settle_outcomes(connection, [*islice(self._unsettled, _UNSETTLED_AT_A_TIME)])
        began = monotonic()
        if began < self._paused_until or not self._member.has_safe_lease:
            return False
        retries = began >= self._retry_at
        due_documents = self._reader.read_due_documents(
            connection, self._member.buckets, self._list_skipped_versions(), retries=retries
        )
        chains = self._reader.read_chains(connection, [*map(self._apply_unsettled, due_documents)])
        outcomes = self._sender.send_chains(chains, lambda: self._keep_lease(connection))
        outcomes += map(_make_missing_outcome, self._reader.missing)
        is_any_confirmed = any(outcome.sent > outcome.due.sent for outcome in outcomes)
        outcomes = self._count_timeouts_as_failures(outcomes, is_any_confirmed)
        for outcome in outcomes:
            self._note_outcome(outcome)
        self._plan_pauses(outcomes, is_any_confirmed, monotonic() - began, retries=retries)
        self._settle_outcomes(connection, [outcome.due.document for outcome in outcomes])
        return is_any_confirmed

    def _count_timeouts_as_failures(
        self, outcomes: list[SendOutcome], is_any_confirmed: bool
    ) -> list[SendOutcome]:
        """Count a repeated timeout as a failure of its document, not as an outage of Kafka.

        This is done only if Kafka answers other requests: then the topic partition of the document
        is the cause. A failed document is retried later, so that documents of other topic
        partitions do not wait for it.

        Args:
            is_any_confirmed: Whether Kafka has confirmed a version in this round.

        Returns:
            All outcomes. `outage` is False in those that count as failures of their document.
        """
        late = [outcome for outcome in outcomes if outcome.failure and outcome.failure.late]
        again = self._outages or any(outcome.due.attempts for outcome in late)
        if not late or not again or not (is_any_confirmed or self._sender.is_broker_reachable()):
            return outcomes
        return [
            replace(outcome, failure=replace(outcome.failure, outage=False))
            if outcome.failure and outcome.failure.late
            else outcome
            for outcome in outcomes
        ]

    def _list_skipped_versions(self) -> dict[str, int]:
        """Return the highest version number that must not be sent now, by document.

        Only documents are listed for which the result of the last sending is not in the database
        yet. After a success, the number is that of the newest version that Kafka has confirmed.
        After a failure, the number is higher than all version numbers.
        """
        return {
            key: _SKIP_DOCUMENT if outcome.failure else outcome.sent
            for key, (outcome, _) in self._unsettled.items()
        }

    def _apply_unsettled(self, due: DueDocument) -> DueDocument:
        """Return `due` with `sent` set to the newest version that this relay has sent.

        The database still has an older value of `sent` if the last outcome is not written yet.
        """
        unsettled = self._unsettled.get(due.document)
        return due if unsettled is None else replace(due, sent=unsettled[0].sent, attempts=0)

    def _note_outcome(self, outcome: SendOutcome) -> None:
        self._counts["sent"] += outcome.sent - outcome.due.sent
        failure = outcome.failure
        if failure is not None:
            self._counts[f"{FAILURE_PREFIX}{failure.reason}"] += 1
            if failure.outage:
                outcome = replace(outcome, failure=None)
        has_progress = outcome.sent > outcome.due.sent
        if has_progress or outcome.failure:
            backoff = Backoff(self.conf.retry_first_seconds, self.conf.retry_most_seconds)
            pause = backoff.choose_pause(1 if has_progress else outcome.due.attempts + 1)
            self._unsettled[outcome.due.document] = (outcome, pause)

    def _plan_pauses(
        self, outcomes: list[SendOutcome], is_any_confirmed: bool, seconds: float, *, retries: bool
    ) -> None:
        """Decide when to send again after a round of sending.

        If Kafka was down in the round, all sending pauses. If versions timed out in a round with
        retries, the next retries wait for twice as long as the round took.

        Args:
            is_any_confirmed: Whether Kafka has confirmed a version in this round.
            seconds: How long the round took.
            retries: Whether the round included retries.
        """
        errors = [
            outcome.failure for outcome in outcomes if outcome.failure and outcome.failure.outage
        ]
        late = any(outcome.failure and outcome.failure.late for outcome in outcomes)
        if is_any_confirmed:
            self._sent_at = monotonic()
        if late and retries:
            self._retry_at = monotonic() + 2 * seconds
        self._outages = self._outages + 1 if errors or late else 0
        self._error = errors[0].text if errors else ""
        if errors:
            logger.warning(
                "Kafka does not accept messages from the outbox: %s (%s documents wait)",
                errors[0].text,
                len(errors),
            )
            self._paused_until = monotonic() + _OUTAGE.choose_pause(self._outages)

    def _settle_outcomes(self, connection: Connection, documents: Iterable[str]) -> None:
        """Write to the database which versions of these documents were sent, and which failed.

        If a writer has locked a document, the outcome of the document is not written now. A later
        call writes this outcome.
        """
        settled = {key: self._unsettled[key] for key in documents if key in self._unsettled}
        if settled and self._member.id is not None:
            written = queue.settle_outcomes(connection, self._member.id, settled.values())
            for key in settled:
                unsettled = self._unsettled.pop(key)
                if key not in written:
                    self._unsettled[key] = unsettled

    def _keep_lease(self, connection: Connection) -> bool:
        """Write the beat while versions are being sent, and return whether to go on sending.

        If the database is down, sending goes on until the last beat is half of LEASE_SECONDS old.
        """
        if self._member.is_beat_due:
            try:
                self._member.write_beat(connection, self._sender.in_hand, self._error)
            except psycopg.Error as error:
                logger.warning("this relay could not write its heartbeat: %s", str(error).strip())
        return self._member.has_safe_lease

    def _wait_for_work(self, connection: Connection) -> None:
        """Sleep until a version is recorded or the next beat is due."""
        longest = _LOCKED_SECONDS if self._unsettled else self.conf.lease_seconds / 5
        paused = self._paused_until - monotonic()
        if paused > 0:
            self.stop.wait(min(paused, longest))
            return
        until = monotonic() + longest
        is_notified = False
        while (
            not is_notified and not self.stop.is_set() and (seconds_left := until - monotonic()) > 0
        ):
            is_notified = self._receive_notifications(connection, min(seconds_left, _STOP_SECONDS))

    def _receive_notifications(self, connection: Connection, seconds: float) -> bool:
        """Receive all notifications, waiting up to `seconds`, and return whether there were any."""
        channels = [
            notification.channel
            for notification in connection.notifies(timeout=seconds, stop_after=1)
        ]
        if membership.CHANNEL in channels:
            self._member.relays_changed = True
        return bool(channels)

    def _is_idle_long_enough(self) -> bool:
        return self.until_idle is not None and monotonic() - self._sent_at > self.until_idle

    def _take_counts(self) -> Counter[str]:
        self._counts["attempts"] += self._sender.attempts
        self._sender.attempts = 0
        counts, self._counts = +self._counts, Counter()
        return counts


def _make_missing_outcome(due: DueDocument) -> SendOutcome:
    """Return a failure for a document: its next version is missing in outbox_message.

    The missing version must not be skipped, so later versions of the document wait.
    """
    text = f"version {due.sent + 1} is not in outbox_message"
    failure = SendFailure("MISSING", text)
    return SendOutcome(due, due.sent, due.waiting_since, failure)
