"""The one door to Kafka for reading: partitions come and go, messages come out as our own type."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from threading import Thread
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient

from ingest.source.message import Message
from ingest.source.throttled_log import ThrottledLog

logger = logging.getLogger(__name__)
# What librdkafka says by itself: in an outage the same thing dozens of times a second.
client_logger = logging.getLogger(f"{__name__}.client")
client_logger.addFilter(ThrottledLog())

Place = tuple[str, int]

# Our choices for every client, then for the consumer; what the environment gives goes before them.
Config = dict[str, Any]

COMMON: Config = {"client.id": "annals"}
READING: Config = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "session.timeout.ms": 10_000,
    "topic.metadata.refresh.interval.ms": 5_000,
    # Of what is fetched: much more in memory where it came compressed.
    "queued.max.messages.kbytes": 4_096,
    "fetch.max.bytes": 2_097_152,
    # How long a broker may hold back an answer while nothing comes. Apache Kafka answers the
    # moment something does; the embedded broker looks only at the end of the wait.
    "fetch.wait.max.ms": 10,
    # The default of a second starves a fast reader each time the queue has been full.
    "fetch.queue.backoff.ms": 5,
}
# These belong to the consumer: a given value would break what the ledger promises.
OURS = frozenset(
    {"group.id", "enable.auto.commit", "enable.auto.offset.store", "auto.offset.reset"}
)
NO_TOPIC_ID = ("", "AAAAAAAAAAAAAAAAAAAAAA")
TIMEOUT_SECONDS = 10.0
LEAVING_SECONDS = 2.0
# How many session timeouts to wait for partitions before the group is taken for stuck.
PATIENCE_SESSIONS = 1.5
# A producer may claim any time for its message; beyond the year 9999 it is taken for none.
LATEST = 253_402_300_799_999


class Unreachable(Exception):
    """The brokers did not answer in time; asking again later is right."""


class Source:
    """The subscribed topics, as a member of a consumer group. Not for several threads.

    on_assigned gets the partitions that are now ours: nothing is read of them before start().
    on_revoked is called while they are still ours, on_lost when they are not any more; both from
    within poll().
    """

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topics: Sequence[str],
        given: Mapping[str, str],
        on_assigned: Callable[[list[Place]], None],
        on_revoked: Callable[[], None],
        on_lost: Callable[[], None],
    ) -> None:
        common: Config = {**COMMON, "bootstrap.servers": bootstrap, **given}
        mine = {name: value for name, value in READING.items() if name in OURS}
        reading: Config = {**READING, **common, **mine, "group.id": group}
        self._consumer = ck.Consumer({**reading, "error_cb": _on_error}, logger=client_logger)
        administration: Config = {**common, "error_cb": _on_error}
        self._admin = AdminClient(administration, logger=client_logger)
        self._on_assigned, self._on_revoked, self._on_lost = on_assigned, on_revoked, on_lost
        self._ids: dict[str, Future[Any]] = {}
        self._paused: set[Place] = set()
        self._group = group
        self._session_seconds = int(reading["session.timeout.ms"]) / 1000
        self._wait_for_partitions()
        self._consumer.subscribe(
            list(topics),
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._gone,
        )

    def poll(self, limit: int, timeout: float) -> list[Message]:
        """Up to `limit` messages: waits `timeout` seconds for the first, not for the rest."""
        first = self._consumer.poll(timeout)
        if first is None:
            self._unstick()
            return []
        rest = self._consumer.consume(limit - 1, 0) if limit > 1 else []
        return [_message(raw) for raw in (first, *rest) if _sound(raw)]

    def start(self, offsets: Mapping[Place, int]) -> None:
        """Read these partitions from these offsets, and no others; none is paused."""
        # librdkafka keeps a partition paused through rebalances and assignments.
        self.resume(list(self._paused))
        self._consumer.assign([ck.TopicPartition(*place, at) for place, at in offsets.items()])

    def seek(self, place: Place, offset: int) -> None:
        """Read one partition, which start() named, from another offset."""
        self._consumer.seek(ck.TopicPartition(*place, offset))

    def pause(self, places: Iterable[Place]) -> None:
        """Deliver nothing of these partitions until resume() or start()."""
        paused = [*places]
        self._paused.update(paused)
        self._consumer.pause([ck.TopicPartition(*place) for place in paused])

    def resume(self, places: Iterable[Place]) -> None:
        """End pause()."""
        resumed = [*places]
        self._paused.difference_update(resumed)
        self._consumer.resume([ck.TopicPartition(*place) for place in resumed])

    def commit(self, offsets: Mapping[Place, int]) -> None:
        """Tell the group how far we are, for tools that show lag; close() waits for it. Failing
        harms nothing: the ledger is what counts."""
        if not offsets:
            return
        try:
            self._consumer.commit(
                offsets=[ck.TopicPartition(*place, at) for place, at in offsets.items()]
            )
        except ck.KafkaException as error:
            logger.warning("offsets not committed to Kafka: %s", error)

    def watermarks(self, place: Place) -> tuple[int, int]:
        """First offset that the broker has, and the one after its last. Asks the broker; raises
        Unreachable."""
        try:
            low, high = self._consumer.get_watermark_offsets(
                ck.TopicPartition(*place), timeout=TIMEOUT_SECONDS
            )
        except ck.KafkaException as error:
            raise Unreachable(str(error)) from error
        return int(low), int(high)

    def high_watermark(self, place: Place) -> int:
        """The offset after the partition's last, as the last fetch told it; 0: not known yet."""
        _, high = self._consumer.get_watermark_offsets(ck.TopicPartition(*place), cached=True)
        return max(0, int(high))

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The id of each topic that exists; empty where the broker knows no ids. Raises
        Unreachable."""
        return self._answers(self._ask(topics), TIMEOUT_SECONDS)

    def ask_topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The answer to the question before this one, if it has come. Asks anew; never waits."""
        if any(not future.done() for future in self._ids.values()):
            return {}
        try:
            known = self._answers(self._ids, 0)
        except Unreachable:
            known = {}
        self._ids = self._ask(topics)
        return known

    def close(self) -> None:
        """Leave the group, once what was committed is there. Brokers that are away are not waited
        for: they will notice by themselves that the member is gone. No callback comes any more."""
        self._on_revoked = self._on_lost = lambda: None
        leaving = Thread(target=self._consumer.close, name="leaving", daemon=True)
        leaving.start()
        leaving.join(LEAVING_SECONDS)
        if leaving.is_alive():
            logger.warning("left without saying so: the brokers do not answer")

    def _ask(self, topics: Iterable[str]) -> dict[str, Future[Any]]:
        names = sorted(set(topics))
        if not names:
            return {}
        asked: dict[str, Future[Any]] = self._admin.describe_topics(
            ck.TopicCollection(names), request_timeout=TIMEOUT_SECONDS
        )
        return asked

    def _wait_for_partitions(self) -> None:
        self._unassigned_since: float | None = time.monotonic()
        self._patience = PATIENCE_SESSIONS * self._session_seconds

    def _unstick(self) -> None:
        """Where no partitions came for long, have the embedded broker forget the group.

        When a leader leaves during a rebalance, that broker goes on waiting for it, and so does
        every later member. After this they join an empty group. Never waits.
        """
        since = self._unassigned_since
        if since is None or time.monotonic() - since < self._patience:
            return
        # Longer each time: several members doing this in turn would never get a group together.
        self._unassigned_since, self._patience = time.monotonic(), 2 * self._patience
        described = self._admin.describe_cluster(request_timeout=TIMEOUT_SECONDS)
        described.add_done_callback(self._forget_group)

    def _forget_group(self, described: Future[Any]) -> None:
        # The embedded broker's cluster id is its directory. No other broker is ever asked this.
        if described.exception() is None and str(described.result().cluster_id).startswith("/"):
            logger.warning("the embedded broker's group %s is stuck: forgetting it", self._group)
            self._admin.delete_consumer_groups([self._group])

    @staticmethod
    def _answers(asked: Mapping[str, Future[Any]], timeout: float) -> dict[str, str]:
        ids: dict[str, str] = {}
        for topic, future in asked.items():
            try:
                text = str(future.result(timeout).topic_id)
            except ck.KafkaException as error:
                if error.args[0].code() == ck.KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                raise Unreachable(str(error)) from error
            except TimeoutError as error:
                raise Unreachable("the brokers did not describe the topics in time") from error
            ids[topic] = "" if text in NO_TOPIC_ID else text
        return ids

    def _assigned(self, consumer: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        # Nothing may be read before the ledger says from where: take nothing for now.
        consumer.assign([])
        self._unassigned_since = None
        self._on_assigned([(each.topic, each.partition) for each in partitions])

    def _revoked(self, consumer: ck.Consumer, _: list[ck.TopicPartition]) -> None:
        self._wait_for_partitions()
        self._on_revoked()
        consumer.unassign()

    def _gone(self, consumer: ck.Consumer, _: list[ck.TopicPartition]) -> None:
        self._wait_for_partitions()
        self._on_lost()
        consumer.unassign()


def peek(
    bootstrap: str, given: Mapping[str, str], place: Place, offset: int, count: int
) -> list[Message]:
    """Up to `count` messages of a partition from an offset on, without touching the group. Raises
    Unreachable."""
    consumer = ck.Consumer(
        {
            **READING,
            **COMMON,
            "bootstrap.servers": bootstrap,
            **given,
            "group.id": "annals-peek",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "queued.max.messages.kbytes": 1_024,
        },
        logger=client_logger,
    )
    found: list[Message] = []
    try:
        consumer.assign([ck.TopicPartition(*place, offset)])
        while len(found) < count:
            raw = consumer.poll(TIMEOUT_SECONDS)
            if raw is None or raw.error() is not None:
                break
            found.append(_message(raw))
    except ck.KafkaException as error:
        raise Unreachable(str(error)) from error
    finally:
        consumer.close()
    return found


def ends(bootstrap: str, given: Mapping[str, str], places: Iterable[Place]) -> dict[Place, int]:
    """The offset after the last of each partition, asked of the brokers now. Partitions that do
    not exist are left out. Raises Unreachable."""
    consumer = ck.Consumer(
        {**COMMON, "bootstrap.servers": bootstrap, **given, "group.id": "annals-peek"},
        logger=client_logger,
    )
    try:
        metadata = consumer.list_topics(timeout=TIMEOUT_SECONDS)
        known = {(t.topic, p) for t in metadata.topics.values() for p in t.partitions}
        return {
            place: int(
                consumer.get_watermark_offsets(ck.TopicPartition(*place), timeout=TIMEOUT_SECONDS)[
                    1
                ]
            )
            for place in places
            if place in known
        }
    except ck.KafkaException as error:
        raise Unreachable(str(error)) from error
    finally:
        consumer.close()


def _message(raw: ck.Message) -> Message:
    kind, stamp = raw.timestamp()
    headers = raw.headers()
    return Message(
        raw.topic(),  # type: ignore[arg-type] # None only for errors
        raw.partition(),  # type: ignore[arg-type]
        raw.offset(),  # type: ignore[arg-type]
        stamp if kind and 0 <= stamp <= LATEST else -1,
        raw.key(),
        raw.value(),
        tuple(headers) if headers else (),  # type: ignore[arg-type]
    )


def _sound(raw: ck.Message) -> bool:
    error = raw.error()
    if error is None:
        return True
    if error.code() not in (
        ck.KafkaError.UNKNOWN_TOPIC_OR_PART,  # not made yet, or deleted: read once it is there
        ck.KafkaError._PARTITION_EOF,
    ):
        logger.warning("Kafka: %s", error.str())
    return False


def _on_error(error: ck.KafkaError) -> None:
    client_logger.warning("Kafka: %s", error.str())
