"""Answers who misses versions: reads requests from Kafka, and sends the versions again.

A request is a message of the topic `annals.gaps`: a JSON object with kind, id, from and to, both
included. Its offset is committed when Kafka has all; versions may come twice.
"""

import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from threading import Event
from typing import Final

from django.db import Error, connections
from django.utils import timezone

from outbox.conf import Backoff, Conf
from outbox.inbox.reader import Reader
from outbox.message import Version
from outbox.relay.queue import Chain, Due
from outbox.relay.sender import Sender

logger = logging.getLogger(__name__)

TOPIC: Final = "annals.gaps"
NEWEST: Final = 2**31 - 1
_POLL_SECONDS: Final = 0.5
_OUTAGE: Final = Backoff(0.5, 30.0)
# For one request: who is thrown out of the group meanwhile begins with it again, for ever.
_LONGEST_SECONDS: Final = 1_800.0
# At a time.
MOST_VERSIONS: Final = 50
# What waits is left to the relay.
_VERSIONS: Final = """
SELECT version, type, recorded_at, updated_at, client_id, author, parent, data FROM outbox_message
WHERE document = %(key)s AND version BETWEEN %(first)s AND %(last)s
    AND version <= (SELECT sent FROM outbox_document WHERE key = %(key)s)
ORDER BY version LIMIT %(most)s
"""


class _OutageError(Exception):
    """Kafka takes nothing now."""


@dataclass(frozen=True, slots=True)
class Request:
    """Versions first to last of the document kind/id."""

    kind: str
    id: str
    first: int
    last: int

    @property
    def document(self) -> str:
        return f"{self.kind}/{self.id}"


def read(value: bytes | None) -> Request | None:
    """The request in a message; None if it is none."""
    try:
        found = json.loads(value or b"")
        first, last = int(found["from"]), int(found["to"])
        request = Request(str(found["kind"]), str(found["id"]), first, last)
        request.document.encode()
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    # PostgreSQL takes no other texts and numbers.
    return None if "\0" in request.document or not 0 <= first <= last <= NEWEST else request


@dataclass(slots=True)
class Answerer:
    """Answers for one database. stop: set it to have run() return, after which the next process
    answers. until_idle: run() returns once there was no request for so many seconds."""

    conf: Conf
    alias: str
    stop: Event = field(default_factory=Event)
    until_idle: float | None = None

    def run(self) -> None:
        """Answer until it is stopped, over outages of the database and of Kafka. Raises
        WrongSettings at once if Kafka's client does not take its settings."""
        sender = Sender(self.conf)
        sender.open()
        reader = Reader(self.conf, f"{self.conf.client_id}-gaps", [TOPIC], _LONGEST_SECONDS)
        try:
            while not self.stop.is_set() and not reader.idle(self.until_idle):
                for message in reader.read(1, _POLL_SECONDS):
                    request = read(message.value)
                    if request is None:
                        logger.warning("%s: no request for versions; passed over", message.place)
                    elif request.kind in self.conf.topics and not self._answered(request, sender):
                        return
                    reader.commit([message])
        finally:
            reader.close()
            connections[self.alias].close()

    def _answered(self, request: Request, sender: Sender) -> bool:
        """Send what is asked for, over outages. False if it was stopped before."""
        first, sent, failures = request.first, 0, 0
        while not self.stop.is_set():
            try:
                versions = self._read(request, first)
                sent += _send(versions, sender, self.stop)
            except (Error, _OutageError) as error:
                connections[self.alias].close()
                failures += 1
                logger.warning("%s: tried again: %s", request.document, str(error).strip())
                self.stop.wait(_OUTAGE.pause(failures))
                continue
            failures = 0
            if len(versions) < MOST_VERSIONS:
                logger.info(
                    "%s, versions %s to %s: %s sent again",
                    request.document, request.first, request.last, sent,
                )  # fmt: skip
                return not self.stop.is_set()
            first = versions[-1].version + 1
        return False

    def _read(self, request: Request, first: int) -> list[Version]:
        """The next versions from `first` on that are here and were sent, ascending."""
        given: dict[str, str | int] = {"key": request.document, "last": request.last}
        with connections[self.alias].cursor() as cursor:
            cursor.execute(_VERSIONS, given | {"first": first, "most": MOST_VERSIONS})
            return [Version(request.document, *row) for row in cursor.fetchall()]


def _send(versions: Iterable[Version], sender: Sender, stop: Event) -> int:
    """Send versions of one document in their order; how many Kafka took. One that it refuses is
    passed over: it would be refused again. Raises _OutageError."""
    left, sent = [*versions], 0
    while left and not stop.is_set():
        now = timezone.now()
        due = Due(left[0].document, 0, left[0].version - 1, left[-1].version, now, now, 0)
        [outcome] = sender.send([Chain(due, left)], lambda: not stop.is_set())
        done = sum(each.version <= outcome.sent for each in left)
        sent, left = sent + done, left[done:]
        if outcome.failure is None:
            continue
        if outcome.failure.outage or outcome.failure.late:
            raise _OutageError(outcome.failure.text)
        logger.error(
            "%s, version %s: Kafka refuses it: %s",
            left[0].document, left[0].version, outcome.failure.text,
        )  # fmt: skip
        left = left[1:]
    return sent
