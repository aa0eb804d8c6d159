"""Reads messages from Kafka, as a member of a consumer group or outside one."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Thread

import confluent_kafka as ck

from ingest.kafka.brokers import (
    Brokers,
    BrokerSnapshot,
    OffsetRequest,
    TopicRequest,
)
from ingest.kafka.client import (
    COMMON_CONFIG,
    TIMEOUT_SECONDS,
    Config,
    ConnectionStatus,
    RefusedError,
    StuckMemberTimer,
    create_client,
    read_headers,
)
from ingest.messages.message import KafkaMessage, KafkaPartition

logger = logging.getLogger(__name__)
# Settings of the consumer. Settings from the environment override them.
READING_CONFIG: Config = {
    "session.timeout.ms": 10_000,
    "topic.metadata.refresh.interval.ms": 5_000,
    # This limit counts fetched bytes, which may be compressed. The messages then need much more
    # memory.
    "queued.max.messages.kbytes": 4_096,
    "fetch.max.bytes": 2_097_152,
    # How long a broker may wait for messages before it sends an empty answer. The embedded broker
    # always waits so long, because it checks for messages only at the end.
    "fetch.wait.max.ms": 10,
    # After the local queue was full, the client waits so long before it fetches again. With the
    # default of a second, a fast reader would wait for messages.
    "fetch.queue.backoff.ms": 5,
}
# Settings that cannot be overridden, because the ledger depends on them.
FIXED_CONFIG: Config = {
    "auto.offset.reset": "earliest",
    # Report the end of a partition. It proves that the missing offsets before the end will never be
    # delivered.
    "enable.partition.eof": True,
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
}
# Errors of a broker that has accepted the login, but does not let it read a topic or join a group.
_DENIALS = frozenset(
    {
        ck.KafkaError.TOPIC_AUTHORIZATION_FAILED,
        ck.KafkaError.GROUP_AUTHORIZATION_FAILED,
        ck.KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)
LEAVING_SECONDS = 2.0
TOPICS_SECONDS = 1.0
# A member counts as stuck after this many session timeouts without partitions.
STUCK_AFTER_SESSIONS = 1.5
# For how many session timeouts a member may deliver no message although some are unread.
STILL_AFTER_SESSIONS = 3
# A producer can set any timestamp; one beyond the year 9999 counts as unknown.
MAX_TIMESTAMP = 253_402_300_799_999


class GroupMember:
    """A member of a consumer group, subscribed to topics. Not thread-safe.

    Args:
        overrides: Settings of librdkafka.
        on_assigned: Called with the partitions that the group assigned. They are not read before
            `start` is called.
        on_revoked: Called when the group takes the partitions away. During the call they are
            still assigned to this member.
        on_lost: Called when this member has lost its partitions, perhaps to another member.
        on_stuck: Called when the group has assigned no partitions for a long time, although the
            brokers answer.

    The callbacks run within `poll`.
    """

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topics: Sequence[str],
        overrides: Mapping[str, str],
        on_assigned: Callable[[list[KafkaPartition]], None],
        on_revoked: Callable[[], None],
        on_lost: Callable[[], None],
        on_stuck: Callable[[], None] | None = None,
    ) -> None:
        common: Config = {**COMMON_CONFIG, "bootstrap.servers": bootstrap, **overrides}
        self._settings: Config = {**READING_CONFIG, **common, **FIXED_CONFIG, "group.id": group}
        self._status = ConnectionStatus(". Nothing is lost; trying again")
        self._brokers = Brokers(bootstrap, overrides)
        self._on_assigned, self._on_revoked, self._on_lost = on_assigned, on_revoked, on_lost
        self._on_stuck = on_stuck
        self._paused: set[KafkaPartition] = set()
        self._reached_ends: dict[KafkaPartition, int] = {}
        # The topics and the group that this login may not read, in words, first denied first.
        self._denied: dict[str, None] = {}
        self._group, self._topics = group, topics
        self._session_seconds = int(self._settings["session.timeout.ms"]) / 1000
        self._stuck_timer = StuckMemberTimer(
            STUCK_AFTER_SESSIONS * self._session_seconds, time.monotonic()
        )
        self._was_member = False
        self._consumer = self._create_subscribed_client()

    def poll(self, limit: int, timeout: float) -> list[KafkaMessage]:
        """Return up to `limit` messages. Waits up to `timeout` seconds for the first one only.

        Raises:
            RefusedError: The brokers do not accept the login, and never did.
        """
        first = self._consumer.poll(timeout)
        if self._status.refused and not self._was_member and not self._are_brokers_reachable():
            raise RefusedError(self._status.reason)
        if first is None:
            self._unstick()
            return []
        further = self._consumer.consume(limit - 1, 0) if limit > 1 else []
        messages = [
            _convert_message(raw)
            for raw in (first, *further)
            if (error := raw.error()) is None or self._note_event(raw, error)
        ]
        if self._denied and messages:
            for message in messages:
                self._denied.pop(f"the topic {message.topic}", None)
        return messages

    @property
    def refused(self) -> bool:
        """Whether a broker does not accept the login at present."""
        return self._status.refused

    def take_reached_ends(self) -> dict[KafkaPartition, int]:
        """Return the end offsets of the partitions that were read to their end since the last call.

        The caller must first handle all messages that `poll` has returned.
        """
        ends, self._reached_ends = self._reached_ends, {}
        return ends

    def start(self, offsets: Mapping[KafkaPartition, int]) -> None:
        """Read exactly these partitions, from these offsets. End all pauses."""
        # librdkafka keeps a partition paused through rebalances and assignments.
        self.resume(list(self._paused))
        self._reached_ends = {}
        self._consumer.assign(
            [ck.TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        )

    @property
    def topics(self) -> Sequence[str]:
        """The subscribed topics."""
        return self._topics

    @property
    def denied(self) -> str | None:
        """The topics that this login may not read and the group that it may not join, in words.

        None if the login has all rights. A topic counts as denied until one of its messages or its
        end is read. The group counts as denied until it assigns partitions.
        """
        return ", ".join(self._denied) or None

    def ask_topics(self, topics: Iterable[str]) -> TopicRequest:
        """Ask the brokers which of the topics exist. Never waits."""
        return self._brokers.ask_topics(topics)

    def pause(self, partitions: Iterable[KafkaPartition]) -> None:
        """Make `poll` deliver no messages of these partitions until `resume` or `start`."""
        paused = [*partitions]
        self._paused.update(paused)
        self._consumer.pause([ck.TopicPartition(*partition) for partition in paused])

    def resume(self, partitions: Iterable[KafkaPartition]) -> None:
        """Make `poll` deliver messages of paused partitions again."""
        resumed = [*partitions]
        self._paused.difference_update(resumed)
        self._consumer.resume([ck.TopicPartition(*partition) for partition in resumed])

    def is_paused(self, partition: KafkaPartition) -> bool:
        """Return whether a partition is paused."""
        return partition in self._paused

    @property
    def standstill_seconds(self) -> float:
        """The seconds after which a member stands still if it has unread messages but gets none."""
        return STILL_AFTER_SESSIONS * self._session_seconds

    def commit(self, offsets: Mapping[KafkaPartition, int]) -> None:
        """Commit offsets to the group, for programs that show its lag. Does not wait."""
        if not offsets:
            return
        try:
            self._consumer.commit(
                offsets=[
                    ck.TopicPartition(*partition, offset) for partition, offset in offsets.items()
                ]
            )
        except ck.KafkaException as error:
            logger.warning(
                "offsets not committed to Kafka: %s. Nothing is lost: the ledger has them", error
            )

    def ask_offsets(self, partitions: Iterable[KafkaPartition]) -> OffsetRequest:
        """Ask the brokers for the topic ids and offsets of partitions. Never waits."""
        return self._brokers.ask_offsets(partitions)

    def poll_snapshot(self, partitions: Iterable[KafkaPartition]) -> BrokerSnapshot | None:
        """Return the newest answer of the brokers. Never waits. See `Brokers.poll_snapshot`."""
        return self._brokers.poll_snapshot(partitions)

    def get_end_offset(self, partition: KafkaPartition) -> int | None:
        """Return the end offset that the client last got from the broker, or None before that."""
        _, high = self._consumer.get_watermark_offsets(ck.TopicPartition(*partition), cached=True)
        return int(high) if high >= 0 else None

    def close(self) -> None:
        """Finish outstanding commits and leave the group. Waits at most LEAVING_SECONDS."""
        self._on_revoked = self._on_lost = lambda: None
        leaving = self._close_in_thread()
        leaving.join(LEAVING_SECONDS)
        if leaving.is_alive():
            logger.warning("ended without leaving the group: the brokers do not answer")

    def join_again(self) -> None:
        """Give up the partitions as if they were lost, and join the group with a new client."""
        self._stuck_timer.begin(time.monotonic(), are_brokers_up=False)
        self._on_lost()
        self._replace_client("nothing is delivered")

    def _create_subscribed_client(self) -> ck.Consumer:
        """Create a client that joins the group."""
        client = create_client(ck.Consumer, self._settings, self._status)
        client.subscribe(
            list(self._topics),
            on_assign=self._handle_assigned,
            on_revoke=self._handle_revoked,
            on_lost=self._handle_lost,
        )
        return client

    def _close_in_thread(self) -> Thread:
        """Start a thread that closes the client, and return the thread."""
        leaving = Thread(target=self._consumer.close, name="leaving", daemon=True)
        leaving.start()
        return leaving

    def _unstick(self) -> None:
        """Replace a client that has waited long for partitions although the brokers answer."""
        if not self._stuck_timer.is_due(time.monotonic()):
            return
        if not self._are_brokers_reachable():
            self._stuck_timer.note_unanswered(time.monotonic())
        elif self._stuck_timer.note_answered(time.monotonic()):
            if self._on_stuck is not None:
                self._on_stuck()
            if self._was_member:  # else the topics may be missing
                self._replace_client("no partitions are assigned")

    def _are_brokers_reachable(self) -> bool:
        """Return whether the brokers answer.

        A second client asks, because the client of this member may be stuck.
        """
        return self._brokers.is_reachable(TOPICS_SECONDS)

    def _replace_client(self, reason: str) -> None:
        """Replace the client by a new one. Call it only while no partition is assigned.

        Args:
            reason: What is wrong, for the log, such as "no partitions are assigned".
        """
        logger.warning(
            "%s, although the brokers answer: joining the group %s again", reason, self._group
        )
        self._close_in_thread()
        self._paused, self._reached_ends = set(), {}
        self._consumer = self._create_subscribed_client()

    def _note_event(self, raw: ck.Message, error: ck.KafkaError) -> bool:
        """Handle an event that is not a message. Return False, so that `poll` leaves it out."""
        topic, number, offset = raw.topic(), raw.partition(), raw.offset()
        if error.code() == ck.KafkaError._PARTITION_EOF:
            if topic is not None and number is not None and offset is not None and offset >= 0:
                self._reached_ends[topic, number] = offset
            self._denied.pop(f"the topic {topic}", None)
        elif error.code() in _DENIALS:
            group = error.code() == ck.KafkaError.GROUP_AUTHORIZATION_FAILED
            subject = f"the group {self._group}" if group or topic is None else f"the topic {topic}"
            self._denied[subject] = None
        elif error.code() != ck.KafkaError.UNKNOWN_TOPIC_OR_PART:
            # An unknown topic is not logged here: the consumer reads it as soon as it exists.
            logger.warning("Kafka reports: %s", error.str())
        return False

    def _handle_assigned(self, consumer: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        if consumer is not self._consumer:
            return
        # Read no message yet: the consumer first claims the partitions, and so learns the offsets.
        consumer.assign([])
        self._was_member = True
        self._denied.pop(f"the group {self._group}", None)
        self._status.note_accepted_login()
        self._stuck_timer.end()
        self._on_assigned([(partition.topic, partition.partition) for partition in partitions])

    def _handle_revoked(self, consumer: ck.Consumer, _: list[ck.TopicPartition]) -> None:
        if consumer is not self._consumer:
            return
        self._stuck_timer.begin(time.monotonic())
        self._on_revoked()
        consumer.unassign()

    def _handle_lost(self, consumer: ck.Consumer, _: list[ck.TopicPartition]) -> None:
        if consumer is not self._consumer:
            return
        # The session of this member timed out, so the brokers may be away.
        self._stuck_timer.begin(time.monotonic(), are_brokers_up=False)
        self._on_lost()
        consumer.unassign()


def create_reader(settings: Config, status: ConnectionStatus) -> ck.Consumer:
    """Create a client outside any group, to read a few messages.

    Args:
        settings: Settings of librdkafka.

    Raises:
        WrongSettingError: librdkafka does not accept the settings.
    """
    fixed: Config = {
        **FIXED_CONFIG,
        "group.id": "annals-peek",
        "queued.min.messages": 1,
        "fetch.message.max.bytes": 65_536,
    }
    return create_client(ck.Consumer, {**READING_CONFIG, **settings, **fixed}, status)


def peek_messages(
    bootstrap: str, overrides: Mapping[str, str], partition: KafkaPartition, offset: int, count: int
) -> list[KafkaMessage]:
    """Return up to `count` messages of a partition, from an offset on, without joining a group.

    Args:
        overrides: Settings of librdkafka.

    Raises:
        UnreachableError: No broker answered in time.
        WrongSettingError: librdkafka does not accept the settings.
    """
    status = ConnectionStatus()
    consumer = create_reader({**COMMON_CONFIG, "bootstrap.servers": bootstrap, **overrides}, status)
    messages: list[KafkaMessage] = []
    try:
        consumer.assign([ck.TopicPartition(*partition, offset)])
        while len(messages) < count:
            raw = consumer.poll(TIMEOUT_SECONDS)
            if raw is None or raw.error() is not None:
                break
            messages.append(_convert_message(raw))
    except ck.KafkaException as error:
        raise status.make_unreachable_error(consumer, error) from error
    finally:
        consumer.close()
    return messages


def _convert_message(raw: ck.Message) -> KafkaMessage:
    kind, stamp = raw.timestamp()
    epoch = raw.leader_epoch()
    return KafkaMessage(
        raw.topic(),  # type: ignore[arg-type] # None for errors only
        raw.partition(),  # type: ignore[arg-type]
        raw.offset(),  # type: ignore[arg-type]
        stamp if kind and 0 <= stamp <= MAX_TIMESTAMP else -1,
        raw.key(),
        raw.value(),
        read_headers(raw),
        -1 if epoch is None else epoch,
    )
