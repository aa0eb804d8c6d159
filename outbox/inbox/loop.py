"""The consumer: reads, commits what is stored, processes what is due."""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Event
from time import monotonic

import psycopg
from django.db import InterfaceError, OperationalError

from outbox.conf import Backoff
from outbox.errors import WrongSettings
from outbox.inbox import queue, status
from outbox.inbox.conf import InboxConf
from outbox.inbox.message import Message, handlers
from outbox.inbox.reader import Reader
from outbox.inbox.worker import Away, Worker

logger = logging.getLogger(__name__)

_BATCH = 500
# Between two looks at Kafka while there is work, and longest wait while there is none.
_WORK_SECONDS = 1.0
_WAIT_SECONDS = 0.5
_TICK_SECONDS = 2.0
_CLEAN_SECONDS = 3_600.0
_OUTAGE = Backoff(0.1, 5.0)


@dataclass(slots=True)
class Consume:
    """A consumer for one database. stop: set it to have run() finish the message that it processes
    and return. until_idle: run() returns if nothing was read or processed for so many seconds."""

    conf: InboxConf
    alias: str
    stop: Event = field(default_factory=Event)
    until_idle: float | None = None
    _worker: Worker = field(init=False)
    # Read, and not stored yet.
    _read: Sequence[Message] = ()
    _tick_at: float = 0.0
    _clean_at: float = 0.0
    _outages: int = 0

    def __post_init__(self) -> None:
        if not handlers():
            raise WrongSettings(
                "no handler for any topic: handlers are functions with @inbox.handler in the"
                " module inbox of an app"
            )
        self._worker = Worker(self.conf, self.alias, handlers())

    def run(self) -> None:
        """Read and process until it is stopped, over outages of the database and of Kafka. Raises
        WrongSettings at once if Kafka's client does not take its settings."""
        known = self._worker.handlers.values()
        topics = {topic for each in known for topic in each.topics}
        longest = max(each.seconds or self.conf.seconds for each in known)
        reader = Reader(self.conf, self.conf.group, topics, longest)
        try:
            while not self.stop.is_set() and not reader.idle(self.until_idle):
                try:
                    self._round(reader)
                    self._outages = 0
                except (Away, OperationalError, InterfaceError, psycopg.OperationalError) as error:
                    self._wait(reader, error)
            self._count()
        finally:
            reader.close()

    def _round(self, reader: Reader) -> None:
        self._store(reader)
        until = monotonic() + _WORK_SECONDS
        works = True
        while works and not self.stop.is_set() and monotonic() < until:
            works = self._worker.one()
            if works:
                reader.busy_at = monotonic()
        self._tick()
        self._read = reader.stay() if works else reader.read(_BATCH, _WAIT_SECONDS)

    def _store(self, reader: Reader) -> None:
        if self._read:
            self._worker.counts += queue.store(self._read, self._worker.handlers, self.alias)
            reader.commit(self._read)
            self._read = ()

    def _tick(self) -> None:
        now = monotonic()
        if now < self._tick_at:
            return
        self._tick_at = now + _TICK_SECONDS
        queue.tidy(self.conf.retry_most_seconds, self.alias)
        self._count()
        if now >= self._clean_at:
            queue.clean(self.conf.keep_days, self.alias)
            self._clean_at = now + _CLEAN_SECONDS

    def _count(self) -> None:
        status.add(self._worker.counts, self.alias)
        self._worker.counts = Counter()

    def _wait(self, reader: Reader, error: Exception) -> None:
        """The database is away. Stay in the group, and try again later."""
        self._outages += 1
        pause = _OUTAGE.pause(self._outages)
        logger.warning("the database: %s; again in %.1f s", str(error).strip(), pause)
        queue.drop(self.alias)
        self._read = [*self._read, *reader.stay()]
        self.stop.wait(pause)
