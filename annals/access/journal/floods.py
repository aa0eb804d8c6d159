"""Bounds the rows of requests that nobody in particular makes: the first ones of a client in a
minute are rows of their own, the others are counted in one row."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

import psycopg
from django.db import Error, connection

from annals.access.address import network
from annals.access.journal.entry import Entry
from annals.access.journal.words import Action, Actor, Outcome
from annals.access.journal.write import JournalError, write
from history.error_text import describe

log = logging.getLogger(__name__)

# Rows in a minute in one web process: of one client (an address, or a /64 of IPv6), and of all.
OF_ONE: Final = 20
OF_ALL: Final = 500
MINUTE: Final = 60.0
# At the end of a process the database has so long to take the rows.
FLUSH_S: Final = 1.0
LAST_OF_ONE: Final = "more requests of this client in this minute are counted in one row"
LAST_OF_ALL: Final = "more requests of all clients in this minute are counted"


@dataclass(slots=True)
class Minute:
    """What came in one minute. written: rows by client; counted: requests that are no rows, of
    clients that have some; others: those of clients that have none. ends: whether a timer will end
    it."""

    began: float
    written: dict[str, int] = field(default_factory=dict)
    rows: int = 0
    counted: dict[str, int] = field(default_factory=dict)
    others: int = 0
    ends: bool = False

    def take(self, client: str) -> str | None:
        """Whether one more request of the client is a row: the note that it has, mostly empty.
        None: it is counted."""
        mine = self.written.get(client, 0)
        if mine < OF_ONE and self.rows < OF_ALL:
            self.written[client] = mine + 1
            self.rows += 1
            if mine + 1 == OF_ONE:
                return LAST_OF_ONE
            return LAST_OF_ALL if self.rows == OF_ALL else ""
        if mine:
            self.counted[client] = self.counted.get(client, 0) + 1
        else:
            self.others += 1
        return None

    def summary(self) -> list[Entry]:
        """A row for each client whose requests were counted, and one for all other clients."""
        since = datetime.fromtimestamp(self.began, UTC)
        found = [_counted(client, number, since) for client, number in self.counted.items()]
        if self.others:
            found.append(_counted("", self.others, since))
        return found


def _counted(client: str, number: int, since: datetime) -> Entry:
    whose = "of this client" if client else "of clients without a row"
    return Entry(
        login="",
        identity="",
        actor=Actor.NOBODY,
        address=client,
        request_id="",
        action=Action.OTHER,
        outcome=Outcome.REFUSED,
        status=0,
        query=f"{number} more requests {whose} in the minute from {since:%H:%M:%S} UTC",
    )


@dataclass(slots=True)
class Flood:
    """The minute that runs now in this process; None: no request of nobody came yet."""

    minute: Minute | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, client: str) -> str | None:
        """As Minute.take, in the minute that runs now."""
        now = time.time()
        with self.lock:
            minute = self.minute
            if minute is None or (now - minute.began >= MINUTE and not minute.ends):
                minute = self.minute = Minute(now)
            note = minute.take(client)
            if note is None and not minute.ends:
                # The row about the minute must come even if no further request does.
                minute.ends = True
                timer = threading.Timer(max(0.0, minute.began + MINUTE - now), self.end, (minute,))
                timer.daemon = True
                timer.start()
        return note

    def end(self, minute: Minute) -> None:
        """Write what was counted in a minute; the next request begins another one."""
        with self.lock:
            if self.minute is not minute:
                return  # it is written already
            self.minute = None
            found = minute.summary()
        try:
            write(found)
        except (JournalError, Error, psycopg.Error) as error:
            _lacks(minute, describe(error))
        finally:
            connection.close()

    def flush(self) -> None:
        """The process ends: write now what was counted. Returns after FLUSH_S at most."""
        with self.lock:
            minute = self.minute
        if minute is None or not minute.ends:
            return
        writing = threading.Thread(target=self.end, args=(minute,), daemon=True)
        writing.start()
        writing.join(FLUSH_S)
        if writing.is_alive():
            _lacks(minute, "the database did not take the row in time, and the process ends")


def _lacks(minute: Minute, why: str) -> None:
    counted = sum(minute.counted.values()) + minute.others
    log.error(
        "the access journal lacks %d refused requests that nobody made: %s",
        *(counted, why),
    )


FLOOD: Final = Flood()


def bounded(entries: Sequence[Entry]) -> list[Entry]:
    """The rows of one request that are to be written; none if it is counted only."""
    if any(each.actor is not Actor.NOBODY or each.outcome is Outcome.SHOWN for each in entries):
        return list(entries)
    note = FLOOD.take(network(entries[0].address))
    if note is None:
        return []
    return [replace(each, reason=each.reason or note) for each in entries]
