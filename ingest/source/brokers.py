"""Asks the brokers for topic ids and for the first and end offsets of partitions."""

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
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


@dataclass(frozen=True, slots=True)
class Look:
    """What the brokers answered to one question. asked_at: the time.monotonic() before it. ids: of
    existing topics, may be "". ends: of the partitions whose leader answered."""

    asked_at: float
    ids: Mapping[str, str]
    ends: Mapping[KafkaPartition, int]


@dataclass(frozen=True, slots=True)
class TopicStates:
    """What the brokers say of topics. A topic is in none of these where nobody answered."""

    existing: tuple[str, ...]
    missing: tuple[str, ...]
    denied: tuple[str, ...]  # this login may not describe them; whether they exist is not known


class TopicRequest:
    """A request which topics exist, whose answer may still be on its way."""

    def __init__(self, futures: Futures) -> None:
        self.asked_at = time.monotonic()
        self._futures = futures

    def wait(self, seconds: float = 0) -> bool:
        """Wait up to `seconds` for the answer, and return whether it is there."""
        return not wait(self._futures.values(), seconds).not_done

    def get_states(self) -> TopicStates:
        """Return what the brokers answered."""
        codes = {topic: _error_code(future) for topic, future in self._futures.items()}
        existing, missing, denied = (
            tuple(topic for topic, code in codes.items() if code == wanted_code)
            for wanted_code in (None, _MISSING, _DENIED)
        )
        return TopicStates(existing, missing, denied)


class Question:
    """The question for ids and offsets of partitions. The answer may still be on its way."""

    def __init__(self, ids: Futures, low: Futures, end: Futures) -> None:
        self._ids, self._low, self._end = ids, low, end

    def wait(self, seconds: float = 0) -> bool:
        """Wait up to this long for the answer. Whether it is there."""
        asked = (*self._ids.values(), *self._low.values(), *self._end.values())
        return not wait(asked, seconds).not_done

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

    def look(self, asked_at: float) -> Look | None:
        """The same as a Look; None if nobody answered. asked_at: see there."""
        try:
            ids = _topic_ids(self._ids)
        except Unreachable:
            return None
        return Look(asked_at, ids, _known_offsets(self._end)) if ids else None

    def known(self) -> dict[TopicPartition, Bounds]:
        """The same of the partitions whose leader has answered."""
        ids, low, end = _topic_ids(self._ids), _known_offsets(self._low), _known_offsets(self._end)
        return {
            TopicPartition(topic, ids[topic], number): (low[topic, number], end[topic, number])
            for topic, number in self._low
            if topic in ids and (topic, number) in low and (topic, number) in end
        }


class Brokers:
    """The brokers, outside of any group. given: librdkafka settings, else WrongSettingError."""

    def __init__(self, bootstrap: str, given: Mapping[str, str]) -> None:
        self._settings: Config = {**COMMON, "bootstrap.servers": bootstrap, **given}
        self._heard = Heard()
        self._question = Question({}, {}, {})
        self._asked_at = 0.0
        self._leaders_until = 0.0

    @cached_property
    def _admin(self) -> AdminClient:
        """Connected when it is needed: most runs of a consumer are too short for a forecast."""
        return made(AdminClient, self._settings, self._heard)

    def ask(self, partitions: Iterable[KafkaPartition]) -> Question:
        """Ask for the ids and offsets of partitions."""
        wanted = [*partitions]
        low, end = self._offsets(wanted, EARLIEST), self._offsets(wanted, LATEST)
        return Question(_ask_ids(self._admin, {topic for topic, _ in wanted}), low, end)

    def ask_topics(self, topics: Iterable[str]) -> TopicRequest:
        """Ask which of these topics exist. Creates none. Never waits."""
        return TopicRequest(_ask_ids(self._admin, topics))

    def partitions(self, topics: Iterable[str]) -> list[KafkaPartition]:
        """The partitions of those topics that exist. Waits. Raises Unreachable."""
        wanted = set(topics)
        try:
            there = self._admin.list_topics(timeout=TIMEOUT_SECONDS).topics
        except ck.KafkaException as error:
            raise self._heard.unreachable(self._admin, error) from error
        known = [each for each in there.values() if each.topic in wanted]
        return sorted((str(each.topic), int(n)) for each in known for n in each.partitions)

    def bounds(self, partitions: Iterable[KafkaPartition]) -> dict[TopicPartition, Bounds]:
        """The ids and offsets of the partitions that exist and have a leader. Waits. Raises
        Unreachable."""
        wanted = set(partitions)
        there = wanted & set(self.partitions({topic for topic, _ in wanted}))
        question = self.ask(there)
        if not question.wait(TIMEOUT_SECONDS):
            raise Unreachable(self._heard.why or f"no answer in {TIMEOUT_SECONDS:g} seconds")
        found = question.known()
        if there and not found:
            question.answer()
        return found

    def look(self, partitions: Iterable[KafkaPartition]) -> Look | None:
        """The answer to the previous call; None if it is still on its way, or nobody answered."""
        if not self._question.wait():
            return None
        found = self._question.look(self._asked_at)
        self._asked_at, self._question = time.monotonic(), self.ask(partitions)
        return found

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


_MISSING = ck.KafkaError.UNKNOWN_TOPIC_OR_PART
_DENIED = ck.KafkaError.TOPIC_AUTHORIZATION_FAILED


def _error_code(answer: Future[Any]) -> int | None:
    """Return librdkafka's code of the error that a broker answered; None if it answered well."""
    error = answer.exception(0)
    if isinstance(error, ck.KafkaException):
        return int(error.args[0].code())
    return None if error is None else int(ck.KafkaError._FAIL)


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
