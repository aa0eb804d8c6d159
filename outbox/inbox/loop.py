"""The loop of the inbox: reads messages, stores them, commits offsets, processes due messages."""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Event
from time import monotonic

import psycopg
from django.db import InterfaceError, OperationalError

from outbox.conf import Backoff
from outbox.errors import WrongSettingsError
from outbox.inbox import queue, status
from outbox.inbox.conf import InboxConf
from outbox.inbox.message import Message, list_handlers
from outbox.inbox.reader import TopicReader
from outbox.inbox.worker import DatabaseAwayError, MessageProcessor

logger = logging.getLogger(__name__)

_BATCH_MESSAGES = 500
# How often, in seconds, Kafka is read while messages are being processed, and how long a read waits
# while there is nothing to process.
_WORK_SECONDS = 1.0
_WAIT_SECONDS = 0.5
_TICK_SECONDS = 2.0
_CLEAN_SECONDS = 3_600.0
_OUTAGE = Backoff(0.1, 5.0)


@dataclass(slots=True)
class InboxConsumer:
    """A consumer that stores and processes messages in one database.

    Attributes:
        conf: The settings.
        alias: The database in settings.DATABASES.
        stop: Set this event to make `run` finish the current message and return.
        until_idle: After how many seconds without work `run` returns. None: never.
    """

    conf: InboxConf
    alias: str
    stop: Event = field(default_factory=Event)
    until_idle: float | None = None
    _worker: MessageProcessor = field(init=False)
    # The messages that were read but are not stored yet.
    _read: Sequence[Message] = ()
    _tick_at: float = 0.0
    _clean_at: float = 0.0
    _outages: int = 0

    def __post_init__(self) -> None:
        if not list_handlers():
            raise WrongSettingsError(
                "there is no handler: write a function with @inbox.handler in the module inbox"
                " of an app"
            )
        self._worker = MessageProcessor(self.conf, self.alias, list_handlers())

    def run(self) -> None:
        """Read and process messages until stopped. The loop survives outages of database and Kafka.

        Raises:
            WrongSettingsError: Kafka's client refuses its settings. Raised before anything is read.
        """
        used_handlers = self._worker.handlers.values()
        topics = {topic for handler in used_handlers for topic in handler.topics}
        longest = max(handler.seconds or self.conf.seconds for handler in used_handlers)
        reader = TopicReader(self.conf, self.conf.group, topics, longest)
        try:
            while not self.stop.is_set() and not reader.is_idle(self.until_idle):
                try:
                    self._run_once(reader)
                    self._outages = 0
                except (
                    DatabaseAwayError,
                    OperationalError,
                    InterfaceError,
                    psycopg.OperationalError,
                ) as error:
                    self._wait_for_database(reader, error)
            self._add_counts()
        finally:
            reader.close()

    def _run_once(self, reader: TopicReader) -> None:
        self._store_read_messages(reader)
        until = monotonic() + _WORK_SECONDS
        has_work = True
        while has_work and not self.stop.is_set() and monotonic() < until:
            has_work = self._worker.process_next()
            if has_work:
                reader.busy_at = monotonic()
        self._do_periodic_work()
        self._read = (
            reader.stay_in_group()
            if has_work
            else reader.read_messages(_BATCH_MESSAGES, _WAIT_SECONDS)
        )

    def _store_read_messages(self, reader: TopicReader) -> None:
        if self._read:
            self._worker.counts += queue.store_messages(
                self._read, self._worker.handlers, self.alias
            )
            reader.commit_offsets(self._read)
            self._read = ()

    def _do_periodic_work(self) -> None:
        now = monotonic()
        if now < self._tick_at:
            return
        self._tick_at = now + _TICK_SECONDS
        queue.repair_due_times(self.conf.retry_most_seconds, self.alias)
        self._add_counts()
        if now >= self._clean_at:
            queue.truncate_expired_identities(self.conf.keep_days, self.alias)
            self._clean_at = now + _CLEAN_SECONDS

    def _add_counts(self) -> None:
        status.add_counts(self._worker.counts, self.alias)
        self._worker.counts = Counter()

    def _wait_for_database(self, reader: TopicReader, error: Exception) -> None:
        """Stay in the group while the database is down, and wait before the next attempt."""
        self._outages += 1
        pause = _OUTAGE.choose_pause(self._outages)
        logger.warning(
            "the database failed: %s; the inbox will try again in %.1f s",
            str(error).strip(),
            pause,
        )
        queue.drop_connection(self.alias)
        self._read = [*self._read, *reader.stay_in_group()]
        self.stop.wait(pause)
