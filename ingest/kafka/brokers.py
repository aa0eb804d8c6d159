"""Asks the brokers which topics and partitions exist, and for their topic ids and offsets.

Begin with `Brokers`. Each of its `ask` methods returns a request whose answer comes later.
"""

import time
import weakref
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from ingest.kafka.client import (
    COMMON_CONFIG,
    TIMEOUT_SECONDS,
    Config,
    ConnectionStatus,
    UnreachableError,
    create_client,
)
from ingest.messages.message import KafkaPartition, TopicPartition

NO_TOPIC_ID = ("", "AAAAAAAAAAAAAAAAAAAAAA")
EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]

# librdkafka forgets leaders after metadata.max.age.ms, 15 minutes.
LEADERS_KNOWN_SECONDS = 300.0
LEADERS_TIMEOUT_SECONDS = 1.0
# How long a client that is no longer used is kept until its last answers have come.
LAST_ANSWERS_SECONDS = 1.0

# The first offset of a partition at the broker, and its end offset.
Bounds = tuple[int, int]
# The future answers of brokers, by topic or by partition.
Futures = Mapping[Any, Future[Any]]


@dataclass(frozen=True, slots=True)
class BrokerSnapshot:
    """The topic ids and end offsets that the brokers answered to one request."""

    asked_at: float  # time.monotonic() before the request
    ids: Mapping[str, str]  # topic ids by name of existing topics; "" if brokers have no topic ids
    ends: Mapping[KafkaPartition, int]  # end offsets, without partitions that got no answer


@dataclass(frozen=True, slots=True)
class TopicStates:
    """The names of topics, grouped by whether the topics exist according to the brokers.

    A topic is in none of the tuples if no broker answered for it.
    """

    existing: tuple[str, ...]
    missing: tuple[str, ...]
    denied: tuple[str, ...]  # the login may not describe these topics, so they may exist or not


class TopicRequest:
    """A request that asks the brokers which topics exist. The answer comes later."""

    def __init__(self, futures: Futures) -> None:
        self.asked_at = time.monotonic()
        self._futures = futures

    def wait(self, seconds: float = 0) -> bool:
        """Wait for the answer. Return False if it did not come in this time."""
        return not wait(self._futures.values(), seconds).not_done

    def get_states(self) -> TopicStates:
        """Return which topics exist. Call it only if `wait` has returned True."""
        codes = {topic: _get_error_code(future) for topic, future in self._futures.items()}
        existing, missing, denied = (
            tuple(topic for topic, topic_code in codes.items() if topic_code == code)
            for code in (None, _MISSING, _DENIED)
        )
        return TopicStates(existing, missing, denied)


class OffsetRequest:
    """A request for topic ids and for offsets of partitions. The answer comes later."""

    def __init__(self, ids: Futures, first_offsets: Futures, end_offsets: Futures) -> None:
        self._ids, self._first_offsets, self._end_offsets = ids, first_offsets, end_offsets

    def wait(self, seconds: float = 0) -> bool:
        """Wait for the answer. Return False if it did not come in this time."""
        futures = (*self._ids.values(), *self._first_offsets.values(), *self._end_offsets.values())
        return not wait(futures, seconds).not_done

    def get_answer(self) -> dict[TopicPartition, Bounds]:
        """Return the first and end offsets of the partitions of existing topics.

        Call it only if `wait` has returned True.

        Raises:
            UnreachableError: A broker did not answer.
        """
        ids = _collect_topic_ids(self._ids)
        return {
            TopicPartition(topic, ids[topic], number): (
                _read_offset(self._first_offsets[topic, number]),
                _read_offset(self._end_offsets[topic, number]),
            )
            for topic, number in self._first_offsets
            if topic in ids
        }

    def get_snapshot(self, asked_at: float) -> BrokerSnapshot | None:
        """Return the answer as a BrokerSnapshot, or None if the topic ids are not known."""
        try:
            ids = _collect_topic_ids(self._ids)
        except UnreachableError:
            return None
        return (
            BrokerSnapshot(asked_at, ids, _collect_known_offsets(self._end_offsets))
            if ids
            else None
        )

    def get_known_bounds(self) -> dict[TopicPartition, Bounds]:
        """Return the first and end offsets of the partitions for which the brokers answered.

        Raises:
            UnreachableError: A request for the id of a topic failed.
        """
        ids = _collect_topic_ids(self._ids)
        first_offsets = _collect_known_offsets(self._first_offsets)
        end_offsets = _collect_known_offsets(self._end_offsets)
        return {
            TopicPartition(topic, ids[topic], number): (
                first_offsets[topic, number],
                end_offsets[topic, number],
            )
            for topic, number in self._first_offsets
            if topic in ids and (topic, number) in first_offsets and (topic, number) in end_offsets
        }


class Brokers:
    """A client of the brokers outside any consumer group.

    Args:
        bootstrap: The addresses of brokers, as host:port,host:port.
        overrides: Settings of librdkafka. The first request raises WrongSettingError if one is
            wrong.
    """

    def __init__(self, bootstrap: str, overrides: Mapping[str, str]) -> None:
        self._settings: Config = {**COMMON_CONFIG, "bootstrap.servers": bootstrap, **overrides}
        self._status = ConnectionStatus()
        self._snapshot_request = OffsetRequest({}, {}, {})
        self._asked_at = 0.0
        self._leaders_until = 0.0
        self._unanswered: set[Future[Any]] = set()  # the open requests for topic ids

    @cached_property
    def _admin(self) -> AdminClient:
        """The admin client. It connects at its first use, because many processes never need it."""
        admin = create_client(AdminClient, self._settings, self._status)
        weakref.finalize(self, _await_last_answers, admin, self._unanswered)
        return admin

    def ask_offsets(self, partitions: Iterable[KafkaPartition]) -> OffsetRequest:
        """Ask for the topic ids and offsets of partitions. Never waits."""
        requested = [*partitions]
        first_offsets = self._request_offsets(requested, EARLIEST)
        end_offsets = self._request_offsets(requested, LATEST)
        return OffsetRequest(
            self._request_ids({topic for topic, _ in requested}), first_offsets, end_offsets
        )

    def ask_topics(self, topics: Iterable[str]) -> TopicRequest:
        """Ask which of the topics exist. Never waits, and never creates a topic."""
        return TopicRequest(self._request_ids(topics))

    def list_partitions(self, topics: Iterable[str]) -> list[KafkaPartition]:
        """Return the partitions of the topics that exist. Waits for the answer.

        Raises:
            UnreachableError: No broker answered in time.
        """
        names = set(topics)
        try:
            existing = self._admin.list_topics(timeout=TIMEOUT_SECONDS).topics
        except ck.KafkaException as error:
            raise self._status.make_unreachable_error(self._admin, error) from error
        selected = [topic for topic in existing.values() if topic.topic in names]
        return sorted(
            (str(selection.topic), int(n)) for selection in selected for n in selection.partitions
        )

    def fetch_bounds(self, partitions: Iterable[KafkaPartition]) -> dict[TopicPartition, Bounds]:
        """Return the first and end offsets of partitions. Waits for the answer.

        Partitions that do not exist or have no leader are left out.

        Raises:
            UnreachableError: No broker answered in time.
        """
        requested = set(partitions)
        existing = requested & set(self.list_partitions({topic for topic, _ in requested}))
        request = self.ask_offsets(existing)
        if not request.wait(TIMEOUT_SECONDS):
            raise UnreachableError(
                self._status.reason or f"no answer in {TIMEOUT_SECONDS:g} seconds"
            )
        bounds = request.get_known_bounds()
        if existing and not bounds:
            request.get_answer()  # raises the first error
        return bounds

    def poll_snapshot(self, partitions: Iterable[KafkaPartition]) -> BrokerSnapshot | None:
        """Return the answer to the request that an earlier call sent, and send the next request.

        Never waits. Returns None while the answer is on its way, or if no broker answered.
        """
        if not self._snapshot_request.wait():
            return None
        snapshot = self._snapshot_request.get_snapshot(self._asked_at)
        self._asked_at = time.monotonic()
        self._snapshot_request = self.ask_offsets(partitions)
        return snapshot

    def is_reachable(self, seconds: float) -> bool:
        """Wait at most `seconds` for an answer of a broker, and return whether it came."""
        try:
            self._admin.list_topics(timeout=seconds)
        except ck.KafkaException:
            return False
        return True

    def _request_ids(self, topics: Iterable[str]) -> Futures:
        names = sorted(set(topics))
        if not names:
            return {}
        futures: Futures = self._admin.describe_topics(
            ck.TopicCollection(names), request_timeout=TIMEOUT_SECONDS
        )
        for future in futures.values():
            self._unanswered.add(future)
            future.add_done_callback(self._unanswered.discard)
        return futures

    def _request_offsets(self, partitions: Iterable[KafkaPartition], spec: OffsetSpec) -> Futures:
        specs = {ck.TopicPartition(*partition): spec for partition in partitions}
        if not specs:
            return {}
        try:
            self._load_leaders()
        except ck.KafkaException as error:
            return {(spec.topic, spec.partition): _make_failed_future(error) for spec in specs}
        futures = self._admin.list_offsets(
            specs,
            # A consumer reads only up to the first open transaction, so that offset is the end.
            isolation_level=ck.IsolationLevel.READ_COMMITTED,
            request_timeout=TIMEOUT_SECONDS,
        )
        return {(spec.topic, spec.partition): future for spec, future in futures.items()}

    def _load_leaders(self) -> None:
        """Load the leaders of all partitions. Call it before a request for offsets.

        If librdkafka 2.16 does not know the leaders, it asks for them in the caller's thread and in
        its own thread at the same time, and can crash.
        """
        if time.monotonic() > self._leaders_until:
            self._admin.list_topics(timeout=LEADERS_TIMEOUT_SECONDS)
            self._leaders_until = time.monotonic() + LEADERS_KNOWN_SECONDS


def _await_last_answers(_: AdminClient, unanswered: Iterable[Future[Any]]) -> None:
    """Keep a client alive until the brokers have answered its requests for topic ids.

    Waits at most LAST_ANSWERS_SECONDS. librdkafka 2.16 aborts the process if such an answer arrives
    while the client is destroyed.
    """
    wait([*unanswered], LAST_ANSWERS_SECONDS)


def _make_failed_future(error: ck.KafkaException) -> Future[Any]:
    failed: Future[Any] = Future()
    failed.set_exception(error)
    return failed


_MISSING = ck.KafkaError.UNKNOWN_TOPIC_OR_PART
_DENIED = ck.KafkaError.TOPIC_AUTHORIZATION_FAILED


def _get_error_code(answer: Future[Any]) -> int | None:
    """Return librdkafka's error code from a broker's answer, or None if it is not an error."""
    error = answer.exception(0)
    if isinstance(error, ck.KafkaException):
        return int(error.args[0].code())
    return None if error is None else int(ck.KafkaError._FAIL)


def _collect_topic_ids(futures: Futures) -> dict[str, str]:
    ids: dict[str, str] = {}
    for topic, future in futures.items():
        try:
            text = str(future.result(0).topic_id)
        except ck.KafkaException as error:
            if error.args[0].code() == ck.KafkaError.UNKNOWN_TOPIC_OR_PART:
                continue
            raise UnreachableError(error) from error
        ids[topic] = "" if text in NO_TOPIC_ID else text
    return ids


def _collect_known_offsets(futures: Futures) -> dict[KafkaPartition, int]:
    """Return the offsets by partition. Leave out partitions for which no broker answered."""
    offsets = {}
    for partition, future in futures.items():
        with suppress(UnreachableError):
            offsets[partition] = _read_offset(future)
    return offsets


def _read_offset(future: Future[Any]) -> int:
    try:
        return int(future.result(0).offset)
    except ck.KafkaException as error:
        raise UnreachableError(error) from error
