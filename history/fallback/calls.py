"""Calls of the old service, from all requests: only some at a time, and none for a while after
failures in a row.
"""

from __future__ import annotations

import logging
import threading
import time
from queue import Empty, SimpleQueue
from typing import Final, TypeAlias

from history import metrics
from history.fallback import client
from history.fallback.answer import OldVersion, Subject, WrongAnswerError
from history.fallback.client import OldServiceError, Service

log = logging.getLogger(__name__)

# Calls at a time. One that hangs keeps its place until its sockets are shut down.
PLACES: Final = 8
# The name of a host is looked up without a time limit.
GRACE_SECONDS: Final = 0.05
FAILURES: Final = 3  # in a row, before nobody calls
PAUSE_SECONDS: Final = 15.0  # until one call tries again


class Breaker:
    """Closed: every call may go. Open, after FAILURES in a row: none, but one each PAUSE_SECONDS,
    whose outcome closes it or keeps it open. Any thread may ask. now: seconds of a clock that never
    goes back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures = 0
        self._again = 0.0  # when the next call may go while it is open

    @property
    def open(self) -> bool:
        """Whether calls are cut off; also while one call tries again."""
        return self._failures >= FAILURES

    def allows(self, now: float) -> bool:
        """Whether a call may go now. Who is allowed reports `succeeded` or `failed`."""
        with self._lock:
            if not self.open:
                return True
            if now < self._again:
                return False
            self._again = now + PAUSE_SECONDS
            return True

    def succeeded(self) -> None:
        with self._lock:
            self._failures = 0

    def failed(self, now: float) -> None:
        with self._lock:
            self._failures += 1
            self._again = now + PAUSE_SECONDS


BREAKER: Final = Breaker()

_ANSWERED, _FAILED, _CUT = (
    metrics.FALLBACK_REQUESTS.labels(each) for each in ("answered", "failed", "cut")
)

_places = threading.BoundedSemaphore(PLACES)


Outcome: TypeAlias = list[OldVersion] | WrongAnswerError | OldServiceError


def call(service: Service, subject: Subject, seconds: float) -> list[OldVersion] | None:
    """The versions of a timeline; None where the old service fails, or is not called now."""
    if seconds <= 0 or not _places.acquire(blocking=False):
        _CUT.inc()
        return None
    if not BREAKER.allows(time.monotonic()):
        _places.release()
        _CUT.inc()
        return None
    found = _fetched(service, subject, seconds)
    if isinstance(found, OldServiceError):
        BREAKER.failed(time.monotonic())
    else:  # one broken document cuts the others off from nothing
        BREAKER.succeeded()
    if isinstance(found, Exception):
        _FAILED.inc()
        log.warning("the old service: %s", found)
        return None
    _ANSWERED.inc()
    return found


def _fetched(service: Service, subject: Subject, seconds: float) -> Outcome:
    """As client.fetch, in a thread of its own: nothing else can leave a call that does not end."""
    done: SimpleQueue[Outcome] = SimpleQueue()

    def call() -> None:
        found: Outcome
        try:
            found = client.fetch(service, subject, seconds)
        except (WrongAnswerError, OldServiceError) as error:
            found = error
        except BaseException as error:
            found = OldServiceError(f"the call failed ({type(error).__name__})")
        _places.release()
        done.put(found)

    threading.Thread(target=call, daemon=True).start()
    try:
        return done.get(timeout=seconds + GRACE_SECONDS)
    except Empty:
        return OldServiceError("it does not answer in time")
