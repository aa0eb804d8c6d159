"""Reads from Kafka, as a member of a consumer group or outside one. Nothing else does."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Thread

import confluent_kafka as ck

from ingest.source.brokers import Brokers, Look, Question, TopicRequest
from ingest.source.client import (
    COMMON,
    TIMEOUT_SECONDS,
    Config,
    Heard,
    Patience,
    RefusedError,
    headers,
    made,
)
from ingest.source.message import KafkaPartition, Message

logger = logging.getLogger(__name__)
# Settings of the consumer. Those from the environment override them.
READING: Config = {
    "session.timeout.ms": 10_000,
    "topic.metadata.refresh.interval.ms": 5_000,
    # Counted as fetched: compressed messages need much more memory.
    "queued.max.messages.kbytes": 4_096,
    "fetch.max.bytes": 2_097_152,
    # How long a broker may delay an empty answer; the embedded one checks at its end only.
    "fetch.wait.max.ms": 10,
    # With the default of a second, a fast reader waits each time the queue was full.
    "fetch.queue.backoff.ms": 5,
}
# Not to be overridden: the ledger depends on them.
OURS: Config = {
    "auto.offset.reset": "earliest",
    # The end of a partition is reported: what lies before it and was not delivered never will be.
    "enable.partition.eof": True,
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
}
# The broker has accepted the login, and does not let it read.
_DENIALS = frozenset(
    {
        ck.KafkaError.TOPIC_AUTHORIZATION_FAILED,
        ck.KafkaError.GROUP_AUTHORIZATION_FAILED,
        ck.KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)
LEAVING_SECONDS = 2.0
TOPICS_SECONDS = 1.0
# After this many session timeouts without partitions the group counts as stuck.
STUCK_AFTER_SESSIONS = 1.5
# After this many session timeouts without a message, of partitions that have more.
STILL_AFTER_SESSIONS = 3
# A producer can set any timestamp; one beyond the year 9999 counts as unknown.
MAX_TIMESTAMP = 253_402_300_799_999


class Source:
    """A member of a consumer group, subscribed to topics. Not thread-safe. Callbacks run within
    poll(): on_assigned gets the partitions, not read before start(); on_revoked, while they are
    still ours; on_lost, when they are not any more."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topics: Sequence[str],
        given: Mapping[str, str],
        on_assigned: Callable[[list[KafkaPartition]], None],
        on_revoked: Callable[[], None],
        on_lost: Callable[[], None],
    ) -> None:
        common: Config = {**COMMON, "bootstrap.servers": bootstrap, **given}
        self._settings: Config = {**READING, **common, **OURS, "group.id": group}
        self._heard = Heard(". Nothing is lost; trying again")
        self._brokers = Brokers(bootstrap, given)
        self._on_assigned, self._on_revoked, self._on_lost = on_assigned, on_revoked, on_lost
        self._paused: set[KafkaPartition] = set()
        self._ends: dict[KafkaPartition, int] = {}
        self._denied: dict[str, None] = {}
        self._group, self._topics = group, topics
        self._session_seconds = int(self._settings["session.timeout.ms"]) / 1000
        self._patience = Patience(STUCK_AFTER_SESSIONS * self._session_seconds, time.monotonic())
        self._was_member = False
        self._consumer = self._subscribed()

    def poll(self, limit: int, timeout: float) -> list[Message]:
        """Up to `limit` messages. Waits up to `timeout` seconds for the first, not for others.
        Raises RefusedError if the brokers do not accept the login, and never did."""
        first = self._consumer.poll(timeout)
        if self._heard.refused and not self._was_member and not self._reachable():
            raise RefusedError(self._heard.why)
        if first is None:
            self._unstick()
            return []
        rest = self._consumer.consume(limit - 1, 0) if limit > 1 else []
        messages = [
            _message(raw)
            for raw in (first, *rest)
            if (error := raw.error()) is None or self._note(raw, error)
        ]
        if self._denied and messages:
            for message in messages:
                self._denied.pop(f"the topic {message.topic}", None)
        return messages

    @property
    def refused(self) -> bool:
        """Whether a broker does not accept the login at present."""
        return self._heard.refused

    def ends(self) -> dict[KafkaPartition, int]:
        """The partitions that poll() has read to their end since the last call, each with its end
        offset. Take the messages of poll() first."""
        ends, self._ends = self._ends, {}
        return ends

    def start(self, offsets: Mapping[KafkaPartition, int]) -> None:
        """Read these partitions from these offsets, and no others. None is paused."""
        # librdkafka keeps a partition paused through rebalances and assignments.
        self.resume(list(self._paused))
        self._ends = {}
        self._consumer.assign(
            [ck.TopicPartition(*partition, at) for partition, at in offsets.items()]
        )

    @property
    def topics(self) -> Sequence[str]:
        """The topics that are to be read."""
        return self._topics

    @property
    def denied(self) -> str | None:
        """What the brokers do not let this login read, in words; None if they have not refused
        anything since the last message of it."""
        return ", ".join(self._denied) or None

    def ask_topics(self, topics: Iterable[str]) -> TopicRequest:
        """Ask the brokers which of these topics exist. Never waits."""
        return self._brokers.ask_topics(topics)

    def pause(self, partitions: Iterable[KafkaPartition]) -> None:
        """Deliver no messages of these partitions until resume() or start()."""
        paused = [*partitions]
        self._paused.update(paused)
        self._consumer.pause([ck.TopicPartition(*partition) for partition in paused])

    def resume(self, partitions: Iterable[KafkaPartition]) -> None:
        """End pause()."""
        resumed = [*partitions]
        self._paused.difference_update(resumed)
        self._consumer.resume([ck.TopicPartition(*partition) for partition in resumed])

    def is_paused(self, partition: KafkaPartition) -> bool:
        """Whether pause() holds this partition."""
        return partition in self._paused

    @property
    def standstill_seconds(self) -> float:
        """How long nothing may come of partitions that have more."""
        return STILL_AFTER_SESSIONS * self._session_seconds

    def commit(self, offsets: Mapping[KafkaPartition, int]) -> None:
        """Commit offsets to the group, for tools that show lag. close() waits for it."""
        if not offsets:
            return
        try:
            self._consumer.commit(
                offsets=[ck.TopicPartition(*partition, at) for partition, at in offsets.items()]
            )
        except ck.KafkaException as error:
            logger.warning("offsets not committed to Kafka: %s", error)

    def ask(self, partitions: Iterable[KafkaPartition]) -> Question:
        """Ask the brokers for the ids and offsets of partitions. Never waits."""
        return self._brokers.ask(partitions)

    def look(self, partitions: Iterable[KafkaPartition]) -> Look | None:
        """What the brokers have of these partitions: Brokers.look(). Never waits."""
        return self._brokers.look(partitions)

    def high_watermark(self, partition: KafkaPartition) -> int | None:
        """The end offset of the last fetch; 0: an empty partition; None: not known yet."""
        _, high = self._consumer.get_watermark_offsets(ck.TopicPartition(*partition), cached=True)
        return int(high) if high >= 0 else None

    def close(self) -> None:
        """Leave the group after outstanding commits. Does not wait for brokers that are away."""
        self._on_revoked = self._on_lost = lambda: None
        leaving = self._leaving()
        leaving.join(LEAVING_SECONDS)
        if leaving.is_alive():
            logger.warning("ended without leaving the group: the brokers do not answer")

    def join_again(self) -> None:
        """Give up the partitions as if the brokers had taken them, and replace the client."""
        self._patience.begin(time.monotonic(), answer=False)
        self._on_lost()
        self._renew("nothing is delivered")

    def _subscribed(self) -> ck.Consumer:
        """A new client that joins the group."""
        client = made(ck.Consumer, self._settings, self._heard)
        client.subscribe(
            list(self._topics),
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._lost,
        )
        return client

    def _leaving(self) -> Thread:
        """Close the client in a thread that nobody has to wait for."""
        leaving = Thread(target=self._consumer.close, name="leaving", daemon=True)
        leaving.start()
        return leaving

    def _unstick(self) -> None:
        """After a long time without partitions although the brokers answer: have the embedded
        broker delete the group, for whose lost leader it waits forever, and replace a client that
        had partitions before (docs/decisions/0030-stuck-clients.md)."""
        if not self._patience.due(time.monotonic()):
            return
        if not self._reachable():
            self._patience.unanswered(time.monotonic())
        elif self._patience.answered(time.monotonic()):
            self._brokers.forget_stuck_group(self._group)
            if self._was_member:  # else the topics may be missing
                self._renew("no partitions")

    def _reachable(self) -> bool:
        """Whether the brokers answer another client: ours may be the one that is stuck."""
        return self._brokers.reachable(TOPICS_SECONDS)

    def _renew(self, why: str) -> None:
        """Replace the client by a new one. Nothing is assigned, so nothing is lost with it."""
        logger.warning("%s although the brokers answer: joining the group %s again",
                       why, self._group)  # fmt: skip
        self._leaving()
        self._paused, self._ends = set(), {}
        self._consumer = self._subscribed()

    def _note(self, raw: ck.Message, error: ck.KafkaError) -> bool:
        """Take note of an event that is not a message. Returns False, so that poll() drops it."""
        topic, number, offset = raw.topic(), raw.partition(), raw.offset()
        if error.code() == ck.KafkaError._PARTITION_EOF:
            if topic is not None and number is not None and offset is not None and offset >= 0:
                self._ends[topic, number] = offset
            self._denied.pop(f"the topic {topic}", None)
        elif error.code() in _DENIALS:
            group = error.code() == ck.KafkaError.GROUP_AUTHORIZATION_FAILED
            what = f"the group {self._group}" if group or topic is None else f"the topic {topic}"
            self._denied[what] = None
        elif error.code() != ck.KafkaError.UNKNOWN_TOPIC_OR_PART:
            # A topic that is not created yet, or deleted, is read once it exists.
            logger.warning("Kafka: %s", error.str())
        return False

    def _assigned(self, consumer: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        if consumer is not self._consumer:
            return
        # Read nothing before the ledger says from which offset.
        consumer.assign([])
        self._was_member = True
        self._denied.pop(f"the group {self._group}", None)
        self._heard.accepted()
        self._patience.end()
        self._on_assigned([(each.topic, each.partition) for each in partitions])

    def _revoked(self, consumer: ck.Consumer, _: list[ck.TopicPartition]) -> None:
        if consumer is not self._consumer:
            return
        self._patience.begin(time.monotonic())
        self._on_revoked()
        consumer.unassign()

    def _lost(self, consumer: ck.Consumer, _: list[ck.TopicPartition]) -> None:
        if consumer is not self._consumer:
            return
        # Its session timed out, so the brokers may be away.
        self._patience.begin(time.monotonic(), answer=False)
        self._on_lost()
        consumer.unassign()


def reader(settings: Config, heard: Heard) -> ck.Consumer:
    """A client outside of any group, for a look at a few messages. settings: librdkafka's. Raises
    WrongSettingError."""
    ours: Config = {
        **OURS,
        "group.id": "annals-peek",
        "queued.min.messages": 1,
        "fetch.message.max.bytes": 65_536,
    }
    return made(ck.Consumer, {**READING, **settings, **ours}, heard)


def peek(
    bootstrap: str, given: Mapping[str, str], partition: KafkaPartition, offset: int, count: int
) -> list[Message]:
    """Up to `count` messages from an offset on. Raises Unreachable, WrongSettingError."""
    heard = Heard()
    consumer = reader({**COMMON, "bootstrap.servers": bootstrap, **given}, heard)
    found: list[Message] = []
    try:
        consumer.assign([ck.TopicPartition(*partition, offset)])
        while len(found) < count:
            raw = consumer.poll(TIMEOUT_SECONDS)
            if raw is None or raw.error() is not None:
                break
            found.append(_message(raw))
    except ck.KafkaException as error:
        raise heard.unreachable(consumer, error) from error
    finally:
        consumer.close()
    return found


def _message(raw: ck.Message) -> Message:
    kind, stamp = raw.timestamp()
    epoch = raw.leader_epoch()
    return Message(
        raw.topic(),  # type: ignore[arg-type] # None for errors only
        raw.partition(),  # type: ignore[arg-type]
        raw.offset(),  # type: ignore[arg-type]
        stamp if kind and 0 <= stamp <= MAX_TIMESTAMP else -1,
        raw.key(),
        raw.value(),
        headers(raw),
        -1 if epoch is None else epoch,
    )
