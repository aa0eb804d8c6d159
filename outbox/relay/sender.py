"""Hands versions to Kafka: the next version of a document when the one before is confirmed."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from outbox.conf import Conf
from outbox.errors import WrongSettings
from outbox.message import IDEMPOTENCY_KEY
from outbox.relay.queue import Chain, Failure, Outcome

logger = logging.getLogger(__name__)

_DEFAULTS: Final[Mapping[str, Any]] = {
    "client.id": "annals-outbox",
    "compression.type": "lz4",
    "linger.ms": 1,
    # The partition of a key as Kafka's own clients choose it.
    "partitioner": "murmur2_random",
    "reconnect.backoff.max.ms": 1_000,
    # A missing topic is reported after this, not after a timeout that looks like an outage.
    "topic.metadata.propagation.max.ms": 1_000,
}
# What the promises depend on.
_FIXED: Final[Mapping[str, Any]] = {
    "enable.idempotence": True,
    "acks": "all",
    "delivery.report.only.error": False,
}
_OUTAGES: Final = frozenset({
    KafkaError._MSG_TIMED_OUT,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._AUTHENTICATION,
    KafkaError._PURGE_QUEUE,
    KafkaError._PURGE_INFLIGHT,
    KafkaError._FATAL,
    # The session of the producer ended.
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
    KafkaError.UNKNOWN_PRODUCER_ID,
})  # fmt: skip
# Kafka refuses a batch as a whole.
_SHARED: Final = frozenset({
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_MSG,
    KafkaError.INVALID_MSG_SIZE,
})  # fmt: skip
# Batches that are sent to find the bad versions of one batch.
_MOST_PARTS = 64
_POLL_SECONDS = 0.1

# Called about ten times a second while versions are on their way. False: hand over nothing more.
Pulse = Callable[[], bool]


@dataclass(slots=True)
class _Progress:
    """A chain on its way: `done` of its versions are confirmed."""

    chain: Chain
    done: int = 0
    failure: Failure | None = None

    def outcome(self) -> Outcome:
        due = self.chain.due
        if self.done:
            last = self.chain.versions[self.done - 1]
            return Outcome(due, last.version, last.recorded_at, self.failure)
        return Outcome(due, due.sent, due.waiting_since, self.failure)


@dataclass(slots=True)
class Sender:
    """The producer. in_hand: the documents whose versions are on their way."""

    conf: Conf
    in_hand: frozenset[str] = frozenset()
    attempts: int = 0
    _producer: Producer | None = None
    _reports: list[tuple[_Progress, KafkaError | None]] = field(default_factory=list)

    def send(self, chains: Sequence[Chain], pulse: Pulse) -> list[Outcome]:
        """Send the chains, and wait until each version is confirmed or refused, at most half of a
        lease. What pulse() raises ends it: then some may be sent and nobody knows."""
        outcomes = self._together(chains, pulse)
        if len(chains) > 1:
            self._isolate(chains, outcomes, pulse)
        return outcomes

    def open(self) -> None:
        """Start the client. Raises WrongSettings with what librdkafka says about its settings."""
        if "bootstrap.servers" not in self.conf.kafka:
            raise WrongSettings("settings.OUTBOX: KAFKA has no bootstrap.servers")
        try:
            self._client()
        except KafkaException as error:
            raise WrongSettings(f"settings.OUTBOX: KAFKA: {error.args[0].str()}") from None

    def answers(self) -> bool:
        """Whether any broker answers now."""
        try:
            self._client().list_topics(timeout=min(1.0, self.conf.lease_seconds / 5))
        except KafkaException:
            return False
        return True

    def abandon(self) -> None:
        """Forget what is on its way, as far as it has not left yet."""
        if self._producer is not None:
            self._producer.purge()
            self._producer = None
        self._reports.clear()
        self.in_hand = frozenset()

    def _isolate(self, chains: Sequence[Chain], outcomes: list[Outcome], pulse: Pulse) -> None:
        """Of versions that Kafka refused because of another one in the batch, send all but the bad
        ones: by halves, until each bad one is alone."""
        groups, parts = [[*range(len(chains))]], 0
        while groups and parts < _MOST_PARTS:
            refused = [place for place in groups.pop() if _is_shared(outcomes[place])]
            for half in (refused[: len(refused) // 2], refused[len(refused) // 2 :]):
                if half:
                    self._again([*half], chains, outcomes, pulse)
                    parts += 1
                if len(half) > 1:
                    groups.append(half)

    def _again(
        self, places: list[int], chains: Sequence[Chain], outcomes: list[Outcome], pulse: Pulse
    ) -> None:
        """Send what is left of the chains at these places."""
        left = []
        for place in places:
            before = outcomes[place]
            due = replace(before.due, sent=before.sent, waiting_since=before.recorded_at)
            rest = [each for each in chains[place].versions if each.version > before.sent]
            left.append(Chain(due, rest))
        for place, outcome in zip(places, self._together(left, pulse), strict=True):
            outcomes[place] = replace(outcome, due=outcomes[place].due)

    def _together(self, chains: Sequence[Chain], pulse: Pulse) -> list[Outcome]:
        under_way = [_Progress(chain) for chain in chains]
        self.in_hand = frozenset(chain.due.document for chain in chains)
        outstanding = sum(map(self._hand_over, under_way)) if pulse() else 0
        while outstanding:
            self._client().poll(_POLL_SECONDS)
            reports, self._reports = self._reports, []
            goes_on = pulse()
            for progress, error in reports:
                outstanding -= 1
                if error is not None:
                    progress.failure = _failure(error)
                    continue
                progress.done += 1
                if goes_on and progress.done < len(progress.chain.versions):
                    outstanding += self._hand_over(progress)
        self.in_hand = frozenset()
        if any(each.failure and each.failure.outage for each in under_way):
            # What timed out can leave a session that the broker takes nothing more from.
            self.abandon()
        return [each.outcome() for each in under_way]

    def _hand_over(self, progress: _Progress) -> bool:
        """Give the next version of a chain to the client. False if it refuses."""
        version = progress.chain.versions[progress.done]
        topic = self.conf.topics.get(version.entity)
        if topic is None:
            text = f"OUTBOX['TOPICS'] has no topic for {version.entity}"
            progress.failure = Failure("NO_TOPIC", text)
            return False
        self.attempts += 1
        while True:
            try:
                self._client().produce(
                    topic,
                    version.value(),
                    version.key,
                    headers=[(IDEMPOTENCY_KEY, version.idempotency_key)],
                    on_delivery=partial(self._report, progress),
                )
            except BufferError:
                self._client().poll(_POLL_SECONDS)
            except KafkaException as error:
                progress.failure = _failure(error.args[0], alone=True)
                return False
            else:
                return True

    def _report(self, progress: _Progress, error: KafkaError | None, _: Message) -> None:
        self._reports.append((progress, error))

    def _client(self) -> Producer:
        if self._producer is None:
            # A relay that is frozen for longer than its lease must not send what it had queued.
            timeout = {"message.timeout.ms": int(self.conf.lease_seconds * 500)}
            settings = {**_DEFAULTS, **self.conf.kafka, **_FIXED, **timeout}
            self._producer = Producer({**settings, "error_cb": _log}, logger=logger)
        return self._producer


def _is_shared(outcome: Outcome) -> bool:
    return outcome.failure is not None and outcome.failure.shared


def _failure(error: KafkaError, *, alone: bool = False) -> Failure:
    code = error.code()
    again = error.retriable() and code != KafkaError.UNKNOWN_TOPIC_OR_PART
    outage = again or error.fatal() or code in _OUTAGES
    return Failure(
        error.name(),
        error.str(),
        outage,
        late=code == KafkaError._MSG_TIMED_OUT,
        shared=not alone and code in _SHARED,
    )


def _log(error: KafkaError) -> None:
    logger.warning("Kafka: %s", error.str())
