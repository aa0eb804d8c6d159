"""Sends versions to Kafka: each only after the previous version of its document is confirmed."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from outbox.conf import OutboxConf
from outbox.errors import WrongSettingsError
from outbox.recording.message import IDEMPOTENCY_KEY
from outbox.relay.queue import SendFailure, SendOutcome, VersionChain

logger = logging.getLogger(__name__)

_DEFAULTS: Final[Mapping[str, Any]] = {
    "client.id": "annals-outbox",
    "compression.type": "lz4",
    "linger.ms": 1,
    # Choose the partition of a key as Kafka's own clients do.
    "partitioner": "murmur2_random",
    "reconnect.backoff.max.ms": 1_000,
    # A missing topic is reported after this time. A later timeout would look like an outage.
    "topic.metadata.propagation.max.ms": 1_000,
}
# Correctness depends on these settings; a service cannot change them.
_FIXED: Final[Mapping[str, Any]] = {
    "enable.idempotence": True,
    "acks": "all",
    "delivery.report.only.error": False,
}
_OUTAGES: Final = frozenset(
    {
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._AUTHENTICATION,
        KafkaError._PURGE_QUEUE,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._FATAL,
        # The producer's session with the broker has ended.
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.UNKNOWN_PRODUCER_ID,
    }
)
# If Kafka refuses a batch for one of these reasons, a single version in it may be to blame.
_BATCH_REFUSALS: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_MSG_SIZE,
    }
)
# How many batches may be sent to find the bad versions in a refused batch.
_MOST_HALVES = 64
_POLL_SECONDS = 0.1

# Called about ten times a second while versions are being sent. Returns whether to go on sending.
KeepSending = Callable[[], bool]


@dataclass(slots=True)
class _ChainProgress:
    """The progress of sending versions of a document: Kafka confirmed the first `sent_count`."""

    chain: VersionChain
    sent_count: int = 0
    failure: SendFailure | None = None

    def make_outcome(self) -> SendOutcome:
        due = self.chain.due
        if self.sent_count:
            last = self.chain.versions[self.sent_count - 1]
            return SendOutcome(due, last.version, last.recorded_at, self.failure)
        return SendOutcome(due, due.sent, due.waiting_since, self.failure)


@dataclass(slots=True)
class VersionSender:
    """The Kafka producer of a relay.

    Attributes:
        conf: The settings.
        in_hand: The documents whose versions are being sent.
        attempts: How many versions were handed to Kafka. The caller takes the number and resets it.
    """

    conf: OutboxConf
    in_hand: frozenset[str] = frozenset()
    attempts: int = 0
    _producer: Producer | None = None
    _reports: list[tuple[_ChainProgress, KafkaError | None]] = field(default_factory=list)

    def send_chains(
        self, chains: Sequence[VersionChain], keep_sending: KeepSending
    ) -> list[SendOutcome]:
        """Send chains (unsent versions of one document each), and return an outcome for each chain.

        Waits until Kafka has confirmed or refused the versions: at most half of LEASE_SECONDS for
        each version. If `keep_sending` raises an exception, sending ends. Kafka can then have
        versions without a known outcome.
        """
        outcomes = self._send_together(chains, keep_sending)
        if len(chains) > 1:
            self._resend_without_bad_versions(chains, outcomes, keep_sending)
        return outcomes

    def start_client(self) -> None:
        """Start the Kafka client.

        Raises:
            WrongSettingsError: librdkafka refuses the settings. The message quotes librdkafka.
        """
        if "bootstrap.servers" not in self.conf.kafka:
            raise WrongSettingsError("settings.OUTBOX: KAFKA has no bootstrap.servers")
        try:
            self._get_producer()
        except KafkaException as error:
            raise WrongSettingsError(f"settings.OUTBOX['KAFKA']: {error.args[0].str()}") from None

    def is_broker_reachable(self) -> bool:
        """Return whether any broker answers now."""
        try:
            self._get_producer().list_topics(timeout=min(1.0, self.conf.lease_seconds / 5))
        except KafkaException:
            return False
        return True

    def abandon_sends(self) -> None:
        """Drop all versions that the Kafka client has not sent yet."""
        if self._producer is not None:
            self._producer.purge()
            self._producer = None
        self._reports.clear()
        self.in_hand = frozenset()

    def _resend_without_bad_versions(
        self, chains: Sequence[VersionChain], outcomes: list[SendOutcome], keep_sending: KeepSending
    ) -> None:
        """Resend the versions of refused batches, without the bad versions in them.

        Batches are halved until each bad version is alone in its batch.
        """
        groups, parts = [[*range(len(chains))]], 0
        while groups and parts < _MOST_HALVES:
            refused_indexes = [index for index in groups.pop() if _is_shared(outcomes[index])]
            for half in (
                refused_indexes[: len(refused_indexes) // 2],
                refused_indexes[len(refused_indexes) // 2 :],
            ):
                if half:
                    self._resend_remaining([*half], chains, outcomes, keep_sending)
                    parts += 1
                if len(half) > 1:
                    groups.append(half)

    def _resend_remaining(
        self,
        indexes: list[int],
        chains: Sequence[VersionChain],
        outcomes: list[SendOutcome],
        keep_sending: KeepSending,
    ) -> None:
        """Send the unconfirmed versions of the chains at `indexes` again, and update `outcomes`."""
        remaining_chains = []
        for index in indexes:
            earlier = outcomes[index]
            due = replace(earlier.due, sent=earlier.sent, waiting_since=earlier.recorded_at)
            versions = [
                version for version in chains[index].versions if version.version > earlier.sent
            ]
            remaining_chains.append(VersionChain(due, versions))
        for index, outcome in zip(
            indexes, self._send_together(remaining_chains, keep_sending), strict=True
        ):
            outcomes[index] = replace(outcome, due=outcomes[index].due)

    def _send_together(
        self, chains: Sequence[VersionChain], keep_sending: KeepSending
    ) -> list[SendOutcome]:
        progresses = [_ChainProgress(chain) for chain in chains]
        self.in_hand = frozenset(chain.due.document for chain in chains)
        outstanding = sum(map(self._hand_over_next, progresses)) if keep_sending() else 0
        while outstanding:
            self._get_producer().poll(_POLL_SECONDS)
            reports, self._reports = self._reports, []
            may_continue = keep_sending()
            for progress, error in reports:
                outstanding -= 1
                if error is not None:
                    progress.failure = _make_failure(error)
                    continue
                progress.sent_count += 1
                if may_continue and progress.sent_count < len(progress.chain.versions):
                    outstanding += self._hand_over_next(progress)
        self.in_hand = frozenset()
        if any(progress.failure and progress.failure.outage for progress in progresses):
            # After a timeout, the broker may refuse all further versions of this session.
            self.abandon_sends()
        return [progress.make_outcome() for progress in progresses]

    def _hand_over_next(self, progress: _ChainProgress) -> bool:
        """Hand the next version of a document to Kafka's client. Return False if this fails."""
        version = progress.chain.versions[progress.sent_count]
        topic = self.conf.topics.get(version.entity)
        if topic is None:
            text = f"OUTBOX['TOPICS'] has no topic for {version.entity}"
            progress.failure = SendFailure("NO_TOPIC", text)
            return False
        self.attempts += 1
        while True:
            try:
                self._get_producer().produce(
                    topic,
                    version.encode_value(),
                    version.key,
                    headers=[(IDEMPOTENCY_KEY, version.idempotency_key)],
                    on_delivery=partial(self._collect_report, progress),
                )
            except BufferError:
                self._get_producer().poll(_POLL_SECONDS)
            except KafkaException as error:
                progress.failure = _make_failure(error.args[0], is_alone=True)
                return False
            else:
                return True

    def _collect_report(
        self, progress: _ChainProgress, error: KafkaError | None, _: Message
    ) -> None:
        self._reports.append((progress, error))

    def _get_producer(self) -> Producer:
        if self._producer is None:
            # If this process was frozen for longer than its lease, the client must not send the
            # versions in its queue.
            timeout = {"message.timeout.ms": int(self.conf.lease_seconds * 500)}
            settings = {**_DEFAULTS, **self.conf.kafka, **_FIXED, **timeout}
            self._producer = Producer({**settings, "error_cb": _log_client_error}, logger=logger)
        return self._producer


def _is_shared(outcome: SendOutcome) -> bool:
    return outcome.failure is not None and outcome.failure.shared


def _make_failure(error: KafkaError, *, is_alone: bool = False) -> SendFailure:
    code = error.code()
    is_retriable = error.retriable() and code != KafkaError.UNKNOWN_TOPIC_OR_PART
    is_outage = is_retriable or error.fatal() or code in _OUTAGES
    return SendFailure(
        error.name(),
        error.str(),
        is_outage,
        late=code == KafkaError._MSG_TIMED_OUT,
        shared=not is_alone and code in _BATCH_REFUSALS,
    )


def _log_client_error(error: KafkaError) -> None:
    logger.warning("Kafka's client reports: %s", error.str())
