"""Processes messages, one after the other: attempt, effect, and what became of it."""

import logging
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

import psycopg
from django.db import InterfaceError, OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from outbox.conf import Backoff
from outbox.inbox import queue
from outbox.inbox.conf import InboxConf
from outbox.inbox.message import Handler, Message, Reject
from outbox.inbox.queue import Turn, storable


class TimeLimit(BaseException):
    """An attempt took too long. No Exception, so that no handler takes it for one of its own."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raises TimeLimit in the block after so many seconds."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(_: int, __: FrameType | None) -> None:
        raise TimeLimit

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


logger = logging.getLogger(__name__)

CRASHED = "the process ended during the attempt"
# SQLSTATEs that say nothing about a message: connection, resources, shutdown, read-only standby.
_OUTAGES = ("08", "53", "57P", "58", "25006")
_LONGEST_ERROR = 2_000


class Away(Exception):
    """The database is away, or the connection cannot work. queue.drop() it, and begin again."""


class _Taken(Exception):
    """Another consumer has the message: the effect is rolled back."""


@dataclass(slots=True)
class Worker:
    """One for each process. counts: by handler and what, since they were last taken."""

    conf: InboxConf
    alias: str
    handlers: Mapping[str, Handler]
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    # An attempt that ended with the connection, and its error; None: the database was away.
    _unsettled: tuple[Turn, str | None] | None = None
    # The connection that has a time limit, and which.
    _session: tuple[object, float] | None = None
    # By message: how often in a row the database was away during an attempt.
    _losses: Counter[int] = field(default_factory=Counter)

    def one(self) -> bool:
        """Process a message that is due. False: there is none. Raises Away."""
        self._settle()
        turn = queue.take(self.handlers, self.alias)
        if turn is None:
            return False
        # What is raised ends the connection, and the lock with it.
        self._process(turn, self.handlers[turn.handler])
        queue.leave(turn.lock, self.alias)
        return True

    def _process(self, turn: Turn, handler: Handler) -> None:
        most = handler.attempts or self.conf.attempts
        if turn.attempts >= most:
            self._dead(turn, handler, CRASHED if turn.crashed else turn.last_error)
            return
        backoff = Backoff(self.conf.retry_first_seconds, self.conf.retry_most_seconds)
        pause = backoff.pause(turn.attempts + 1)
        begun = queue.begin(turn, pause, self.alias)
        if begun is None:
            return
        self.counts[handler.name, "attempts"] += 1
        turn, message = begun
        try:
            self._attempt(turn, message, handler)
        except _Taken:
            logger.warning("%s: another consumer has it", message.place)
        except Reject as error:
            self._dead(turn, handler, _text(f"Reject: {error}"))
        except (Exception, SystemExit, TimeLimit) as error:
            self._blame(turn, handler, error, pause)
        else:
            self.counts[handler.name, "done"] += 1
            self._losses.pop(turn.id, None)

    def _attempt(self, turn: Turn, message: Message, handler: Handler) -> None:
        seconds = handler.seconds or self.conf.seconds
        session = (connections[self.alias].connection, seconds)
        if self._session != session:
            queue.limit(seconds, self.alias)
            self._session = session
        with limited(seconds), transaction.atomic(using=self.alias, durable=True):
            handler.function(message)
            if not queue.done(turn, self.alias):
                raise _Taken

    def _blame(self, turn: Turn, handler: Handler, error: BaseException, pause: float) -> None:
        # A connection that Django has made since has neither the lock nor the transaction.
        connection = connections[self.alias]
        same = self._session is not None and connection.connection is self._session[0]
        usable = same and _at_rest(connection) and connection.is_usable()
        if self._is_outage(turn, handler, error, usable=usable):
            self._losses[turn.id] += 1
            self._unsettled = (turn, None)
            raise Away(str(error).strip()) from error
        reason = "TimeLimit" if _took_too_long(error) else type(error).__name__
        self.counts[handler.name, f"failure {reason}"] += 1
        text = _text(f"{reason}: {error}".strip().removesuffix(":"))
        logger.warning("%s: %s: %s", handler.name, _place(turn), text, exc_info=error)
        if not usable:
            self._unsettled = (turn, text)
            raise Away(text) from error
        if turn.attempts >= (handler.attempts or self.conf.attempts):
            self._dead(turn, handler, text)
        else:
            queue.failed(turn, text, pause, self.alias)

    def _is_outage(
        self, turn: Turn, handler: Handler, error: BaseException, *, usable: bool
    ) -> bool:
        """Whether the database is to blame. Not for ever."""
        if _took_too_long(error) or self._losses[turn.id] >= (
            handler.attempts or self.conf.attempts
        ):
            return False
        state = _sqlstate(error)
        if isinstance(error, OperationalError | InterfaceError) and state is None:
            return True
        return not usable or (state is not None and state.startswith(_OUTAGES))

    def _dead(self, turn: Turn, handler: Handler, error: str) -> None:
        if queue.dead(turn, error, holds=handler.stop_key, alias=self.alias):
            logger.error("%s: %s is a dead letter: %s", handler.name, _place(turn), error)
            self.counts[handler.name, "dead"] += 1

    def _settle(self) -> None:
        """Write what became of an attempt that ended with the connection."""
        if self._unsettled is None:
            return
        turn, text = self._unsettled
        if text is None:
            queue.uncounted(turn, self.alias)
        else:
            queue.failed(turn, text, self.conf.retry_first_seconds, self.alias)
        self._unsettled = None


def _text(error: str) -> str:
    """What is kept of an error. It may quote the message, and that may have anything."""
    return storable(error[:_LONGEST_ERROR])


def _at_rest(connection: BaseDatabaseWrapper) -> bool:
    """Whether Django knows of no transaction."""
    return connection.autocommit and not (
        connection.in_atomic_block or connection.atomic_blocks or connection.savepoint_ids
    )


def _place(turn: Turn) -> str:
    return "/".join(map(str, turn.place))


def _sqlstate(error: BaseException) -> str | None:
    cause = error.__cause__
    return cause.sqlstate if isinstance(cause, psycopg.Error) else None


def _took_too_long(error: BaseException) -> bool:
    """By our clock, or by PostgreSQL's: statement_timeout, idle_in_transaction_session_timeout."""
    states = {"57014", "25P03"}
    while error is not None:
        if isinstance(error, TimeLimit) or _sqlstate(error) in states:
            return True
        following = error.__context__
        if following is None:
            return False
        error = following
    return False
