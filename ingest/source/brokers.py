"""Asks the brokers for topic ids and for the first and end offsets of partitions."""

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from ingest.source.client import (
    COMMON,
    TIMEOUT_SECONDS,
    Config,
    Heard,
    Unreachable,
    client_logger,
    made,
)
from ingest.source.message import KafkaPartition, TopicPartition

NO_TOPIC_ID = ("", "AAAAAAAAAAAAAAAAAAAAAA")
EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]

# librdkafka forgets leaders after metadata.max.age.ms, 15 minutes.
LEADERS_KNOWN_SECONDS = 300.0
LEADERS_TIMEOUT_SECONDS = 1.0

# The first offset of a partition at the broker and its end offset.
Bounds = tuple[int, int]
# Answers by topic or by partition.
Futures = Mapping[Any, Future[Any]]


class Lows:
    """The question for the first offsets of partitions. The answer may still be on its way."""

    def __init__(self, asked: Futures) -> None:
        self._asked = asked

    def wait(self, seconds: float) -> bool:
        """Wait up to this long for the answer. Whether it is there."""
        wait(self._asked.values(), seconds)
        return _answered(self._asked)

    def answer(self) -> dict[KafkaPartition, int]:
        """Raises Unreachable."""
        return {partition: _offset(future) for partition, future in self._asked.items()}


class Question:
    """The question for ids and offsets of partitions. The answer may still be on its way."""

    def __init__(self, ids: Futures, low: Futures, end: Futures) -> None:
        self._ids, self._low, self._end = ids, low, end

    @property
    def answered(self) -> bool:
        """Whether answer() has one."""
        return all(map(_answered, (self._ids, self._low, self._end)))

    def answer(self) -> dict[TopicPartition, Bounds]:
        """The partitions that exist, with a topic id or "". Raises Unreachable."""
        ids = _topic_ids(self._ids)
        return {
            TopicPartition(topic, ids[topic], number): (
                _offset(self._low[topic, number]),
                _offset(self._end[topic, number]),
            )
            for topic, number in self._low
            if topic in ids
        }


@dataclass(frozen=True, slots=True)
class Look:
    """What the brokers answered to one question. asked_at: the time.monotonic() before it. ids: of
    existing topics, may be "". ends: of the partitions whose leader answered."""

    asked_at: float
    ids: Mapping[str, str]
    ends: Mapping[KafkaPartition, int]


class Brokers:
    """The brokers, outside of any group. given: librdkafka settings. Raises WrongSettingError."""

    def __init__(self, bootstrap: str, given: Mapping[str, str]) -> None:
        settings: Config = {**COMMON, "bootstrap.servers": bootstrap, **given}
        self._admin = made(AdminClient, settings)
        self._ids: Futures = {}
        self._ends: Futures = {}
        self._asked_at = 0.0
        self._leaders_until = 0.0

    def ask(self, partitions: Iterable[KafkaPartition]) -> Question:
        """Ask for the ids and offsets of partitions."""
        wanted = [*partitions]
        low, end = self._offsets(wanted, EARLIEST), self._offsets(wanted, LATEST)
        return Question(_ask_ids(self._admin, {topic for topic, _ in wanted}), low, end)

    def ask_lows(self, partitions: Iterable[KafkaPartition]) -> Lows:
        """Ask for the first offsets of partitions, on a connection of its own."""
        return Lows(self._offsets(partitions, EARLIEST))

    def look(self, partitions: Iterable[KafkaPartition]) -> Look | None:
        """The answer to the previous call; None if it is still on its way, or nobody answered."""
        if not (_answered(self._ids) and _answered(self._ends)):
            return None
        try:
            ids = _topic_ids(self._ids)
        except Unreachable:
            ids = {}
        found = Look(self._asked_at, ids, _known_offsets(self._ends))
        wanted = [*partitions]
        self._asked_at = time.monotonic()
        self._ids = _ask_ids(self._admin, {topic for topic, _ in wanted})
        self._ends = self._offsets(wanted, LATEST)
        return found if found.ids else None

    def reachable(self, seconds: float) -> bool:
        """Whether one of them answers within this time. Waits for it."""
        try:
            self._admin.list_topics(timeout=seconds)
        except ck.KafkaException:
            return False
        return True

    def _offsets(self, partitions: Iterable[KafkaPartition], spec: OffsetSpec) -> Futures:
        wanted = {ck.TopicPartition(*partition): spec for partition in partitions}
        if not wanted:
            return {}
        try:
            self._know_leaders()
        except ck.KafkaException as error:
            return {(each.topic, each.partition): _failed(error) for each in wanted}
        asked = self._admin.list_offsets(
            wanted,
            # The end as a consumer sees it: before the first transaction that is open.
            isolation_level=ck.IsolationLevel.READ_COMMITTED,
            request_timeout=TIMEOUT_SECONDS,
        )
        return {(each.topic, each.partition): future for each, future in asked.items()}

    def _know_leaders(self) -> None:
        """librdkafka (2.16) looks for leaders that it does not know yet in the caller's thread and
        in its own at once, and can crash there. So they are known before offsets are asked for."""
        if time.monotonic() > self._leaders_until:
            self._admin.list_topics(timeout=LEADERS_TIMEOUT_SECONDS)
            self._leaders_until = time.monotonic() + LEADERS_KNOWN_SECONDS

    def forget_stuck_group(self, group: str) -> None:
        """Have the embedded broker delete a group. Other brokers never get this request."""

        def forget(described: Future[Any]) -> None:
            # The embedded broker's cluster id is its directory.
            if described.exception() is None and str(described.result().cluster_id).startswith("/"):
                client_logger.warning("the embedded broker's group %s is stuck: deleting it", group)
                self._admin.delete_consumer_groups([group])

        described = self._admin.describe_cluster(request_timeout=TIMEOUT_SECONDS)
        described.add_done_callback(forget)


def topic_id(bootstrap: str, given: Mapping[str, str], topic: str) -> str:
    """The id of a topic at the brokers; empty if there is no such topic, or the brokers have no
    ids. Asks them. Raises Unreachable, WrongSettingError."""
    heard = Heard()
    admin = made(AdminClient, {**COMMON, "bootstrap.servers": bootstrap, **given}, heard)
    asked = _ask_ids(admin, [topic])
    wait(asked.values(), TIMEOUT_SECONDS)
    if not _answered(asked):
        admin.poll(0)
        raise Unreachable(heard.why or f"no answer in {TIMEOUT_SECONDS:g} seconds")
    return _topic_ids(asked).get(topic, "")


def _ask_ids(admin: AdminClient, topics: Iterable[str]) -> Futures:
    names = sorted(set(topics))
    if not names:
        return {}
    asked: Futures = admin.describe_topics(
        ck.TopicCollection(names), request_timeout=TIMEOUT_SECONDS
    )
    return asked


def _failed(error: ck.KafkaException) -> Future[Any]:
    failed: Future[Any] = Future()
    failed.set_exception(error)
    return failed


def _answered(asked: Futures) -> bool:
    return all(future.done() for future in asked.values())


def _topic_ids(asked: Futures) -> dict[str, str]:
    ids: dict[str, str] = {}
    for topic, future in asked.items():
        try:
            text = str(future.result(0).topic_id)
        except ck.KafkaException as error:
            if error.args[0].code() == ck.KafkaError.UNKNOWN_TOPIC_OR_PART:
                continue
            raise Unreachable(error) from error
        ids[topic] = "" if text in NO_TOPIC_ID else text
    return ids


def _known_offsets(asked: Futures) -> dict[KafkaPartition, int]:
    """Those that were answered."""
    found = {}
    for partition, future in asked.items():
        with suppress(Unreachable):
            found[partition] = _offset(future)
    return found


def _offset(asked: Future[Any]) -> int:
    try:
        return int(asked.result(0).offset)
    except ck.KafkaException as error:
        raise Unreachable(error) from error
