"""Processes messages one by one: begins an attempt, calls the handler, writes the result."""

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
from outbox.inbox.message import Message, MessageHandler, Reject
from outbox.inbox.queue import LockedInboxMessage, make_storable


class AttemptTimeoutError(BaseException):
    """Raised if an attempt takes too long.

    Not a subclass of Exception, so that handlers do not catch it by mistake.
    """


@contextmanager
def limit_time(seconds: float) -> Iterator[None]:
    """Raise AttemptTimeoutError in the `with` block after `seconds`. Main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def raise_timeout(_: int, __: FrameType | None) -> None:
        raise AttemptTimeoutError

    earlier_handler = signal.signal(signal.SIGALRM, raise_timeout)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier_handler)


logger = logging.getLogger(__name__)

CRASHED = "the process ended during the attempt"
# The beginnings of SQLSTATEs that a message cannot cause: connection, resources, shutdown, standby.
_OUTAGES = ("08", "53", "57P", "58", "25006")
_LONGEST_ERROR = 2_000


class DatabaseAwayError(Exception):
    """Raised if the database is down or the connection is unusable.

    The caller closes the connection and starts again.
    """


class _TakenByAnotherError(Exception):
    """Raised to roll back the changes of the handler: another consumer has taken the message."""


@dataclass(slots=True)
class MessageProcessor:
    """Processes the due messages of an inbox, one after the other.

    Attributes:
        conf: The settings.
        alias: The database in settings.DATABASES.
        handlers: The handlers by name.
        counts: Maps a handler name and an outcome, such as "done", to a count. Callers reset it.
    """

    conf: InboxConf
    alias: str
    handlers: Mapping[str, MessageHandler]
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    # An attempt with a result that is not written yet, and its error. In place of the error, None
    # means that the database was down.
    _unsettled: tuple[LockedInboxMessage, str | None] | None = None
    # The connection on which a time limit is set, and the limit.
    _session: tuple[object, float] | None = None
    # By message, how often in a row the database went down during an attempt.
    _losses: Counter[int] = field(default_factory=Counter)

    def process_next(self) -> bool:
        """Process a due message. Returns False if no message is due.

        Raises:
            DatabaseAwayError: The database is down.
        """
        self._settle_attempt()
        locked_message = queue.lock_next_message(self.handlers, self.alias)
        if locked_message is None:
            return False
        # If this fails, the caller closes the connection, which releases the lock too.
        self._process_locked(locked_message, self.handlers[locked_message.handler])
        queue.unlock_chain(locked_message.lock, self.alias)
        return True

    def _process_locked(self, locked_message: LockedInboxMessage, handler: MessageHandler) -> None:
        limit = handler.attempts or self.conf.attempts
        if locked_message.attempts >= limit:
            self._make_dead_letter(
                locked_message,
                handler,
                CRASHED if locked_message.crashed else locked_message.last_error,
            )
            return
        backoff = Backoff(self.conf.retry_first_seconds, self.conf.retry_most_seconds)
        pause = backoff.choose_pause(locked_message.attempts + 1)
        beginning = queue.begin_attempt(locked_message, pause, self.alias)
        if beginning is None:
            return
        self.counts[handler.name, "attempts"] += 1
        locked_message, message = beginning
        try:
            self._attempt_message(locked_message, message, handler)
        except _TakenByAnotherError:
            logger.warning("%s: another consumer has taken over this message", message.place)
        except Reject as error:
            self._make_dead_letter(locked_message, handler, _shorten_error(f"Reject: {error}"))
        except (Exception, SystemExit, AttemptTimeoutError) as error:
            self._handle_failure(locked_message, handler, error, pause)
        else:
            self.counts[handler.name, "done"] += 1
            self._losses.pop(locked_message.id, None)

    def _attempt_message(
        self, locked_message: LockedInboxMessage, message: Message, handler: MessageHandler
    ) -> None:
        seconds = handler.seconds or self.conf.seconds
        session = (connections[self.alias].connection, seconds)
        if self._session != session:
            queue.set_time_limit(seconds, self.alias)
            self._session = session
        with limit_time(seconds), transaction.atomic(using=self.alias, durable=True):
            handler.function(message)
            if not queue.mark_processed(locked_message, self.alias):
                raise _TakenByAnotherError

    def _handle_failure(
        self,
        locked_message: LockedInboxMessage,
        handler: MessageHandler,
        error: BaseException,
        pause: float,
    ) -> None:
        # If Django has opened a new connection, it has neither the lock nor the transaction.
        connection = connections[self.alias]
        is_same_connection = self._session is not None and connection.connection is self._session[0]
        is_usable = (
            is_same_connection and _is_outside_transaction(connection) and connection.is_usable()
        )
        if self._is_outage(locked_message, handler, error, usable=is_usable):
            self._losses[locked_message.id] += 1
            self._unsettled = (locked_message, None)
            raise DatabaseAwayError(str(error).strip()) from error
        reason = "TimeLimit" if _took_too_long(error) else type(error).__name__
        self.counts[handler.name, f"failure {reason}"] += 1
        text = _shorten_error(f"{reason}: {error}".strip().removesuffix(":"))
        logger.warning(
            "%s: %s: %s", handler.name, _format_place(locked_message), text, exc_info=error
        )
        if not is_usable:
            self._unsettled = (locked_message, text)
            raise DatabaseAwayError(text) from error
        if locked_message.attempts >= (handler.attempts or self.conf.attempts):
            self._make_dead_letter(locked_message, handler, text)
        else:
            queue.mark_failed(locked_message, text, pause, self.alias)

    def _is_outage(
        self,
        locked_message: LockedInboxMessage,
        handler: MessageHandler,
        error: BaseException,
        *,
        usable: bool,
    ) -> bool:
        """Return whether the database caused the error, and not the message.

        If the database fails too often during attempts for one message, the message is the cause.
        """
        if _took_too_long(error) or self._losses[locked_message.id] >= (
            handler.attempts or self.conf.attempts
        ):
            return False
        state = _get_sqlstate(error)
        if isinstance(error, OperationalError | InterfaceError) and state is None:
            return True
        return not usable or (state is not None and state.startswith(_OUTAGES))

    def _make_dead_letter(
        self, locked_message: LockedInboxMessage, handler: MessageHandler, error: str
    ) -> None:
        if queue.mark_dead(locked_message, error, holds=handler.stop_key, alias=self.alias):
            logger.error(
                "%s: %s became a dead letter: %s",
                handler.name,
                _format_place(locked_message),
                error,
            )
            self.counts[handler.name, "dead"] += 1

    def _settle_attempt(self) -> None:
        """Write the result of the last attempt, if a lost connection has prevented this so far."""
        if self._unsettled is None:
            return
        locked_message, text = self._unsettled
        if text is None:
            queue.withdraw_attempt(locked_message, self.alias)
        else:
            queue.mark_failed(locked_message, text, self.conf.retry_first_seconds, self.alias)
        self._unsettled = None


def _shorten_error(error: str) -> str:
    """Return an error shortened and without characters that PostgreSQL refuses.

    An error can quote the message, which can contain any characters.
    """
    return make_storable(error[:_LONGEST_ERROR])


def _is_outside_transaction(connection: BaseDatabaseWrapper) -> bool:
    """Return whether Django has no open transaction on the connection."""
    return connection.autocommit and not (
        connection.in_atomic_block or connection.atomic_blocks or connection.savepoint_ids
    )


def _format_place(locked_message: LockedInboxMessage) -> str:
    return "/".join(map(str, locked_message.place))


def _get_sqlstate(error: BaseException) -> str | None:
    cause = error.__cause__
    return cause.sqlstate if isinstance(cause, psycopg.Error) else None


def _took_too_long(error: BaseException) -> bool:
    """Return whether a time limit ended the attempt: Python's alarm, or one of PostgreSQL's."""
    states = {"57014", "25P03"}
    while error is not None:
        if isinstance(error, AttemptTimeoutError) or _get_sqlstate(error) in states:
            return True
        context = error.__context__
        if context is None:
            return False
        error = context
    return False
