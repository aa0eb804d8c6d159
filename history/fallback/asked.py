"""What one request has asked of the old service, each timeline once, and what came of it.

The calls of all requests go through one breaker, and only some at a time.
"""

from __future__ import annotations

import logging
import threading
import time
from enum import Enum
from queue import Empty, SimpleQueue
from typing import Final, TypeAlias

from history import metrics
from history.fallback import client
from history.fallback.answer import OldVersion, Subject, WrongAnswerError
from history.fallback.breaker import Breaker
from history.fallback.client import OldServiceError, Service
from history.requests import deadline

log = logging.getLogger(__name__)

# Calls at a time. One that hangs keeps its place until its sockets are shut down.
PLACES: Final = 8
# The name of a host is looked up without a time limit.
GRACE_SECONDS: Final = 0.05
BREAKER: Final = Breaker()

_ANSWERED, _FAILED, _CUT = (
    metrics.FALLBACK_REQUESTS.labels(each) for each in ("answered", "failed", "cut")
)

_places = threading.BoundedSemaphore(PLACES)


Outcome: TypeAlias = list[OldVersion] | WrongAnswerError | OldServiceError


class AskedState(Enum):
    """What came of the questions of one request."""

    ANSWERED = "answered"
    FAILED = "failed"  # of at least one


class Asked:
    """The questions of one request. All together may take as long as the time limit."""

    def __init__(self, service: Service | None = None) -> None:
        self._service = service
        self._left = service.seconds if service else 0.0
        self.answers: dict[Subject, list[OldVersion] | None] = {}  # so far
        self._aside: set[Subject] = set()  # of which nothing is shown
        self._missed = False
        # By the name of the kind and the id of an entity, then by the number of the version.
        self.versions: dict[tuple[str, str], dict[int, OldVersion]] = {}

    @property
    def possible(self) -> bool:
        """Whether there is an old service that may be asked."""
        return self._service is not None

    @property
    def state(self) -> AskedState | None:
        """None where nothing was asked for the answer."""
        shown = [found for of, found in self.answers.items() if of not in self._aside]
        if self._missed or None in shown:
            return AskedState.FAILED
        return AskedState.ANSWERED if shown else None

    @property
    def failed(self) -> bool:
        """Whether versions may be missing because the old service did not give them."""
        return self.state is AskedState.FAILED

    def missed(self) -> None:
        """The answer lacks versions of the old service although nothing was asked now."""
        self._missed = True

    def ask(self, subject: Subject, *, aside: bool = False) -> list[OldVersion] | None:
        """The versions that the old service has, from the first answer in this request; None if it
        failed. aside: they decide who may see the answer, and are no part of it."""
        if not aside:
            self._aside.discard(subject)
        elif subject not in self.answers:
            self._aside.add(subject)
        if subject not in self.answers:
            found = self.answers[subject] = self._call(subject)
            for each in found or ():
                its = self.versions.setdefault((each.entity.name, each.id), {})
                its.setdefault(each.version, each)
        return self.answers[subject]

    def _call(self, subject: Subject) -> list[OldVersion] | None:
        if self._service is None:
            return None
        if not client.can_be_asked(subject.id):
            return []
        failed = None in self.answers.values()
        if failed or (self._missed and subject not in self._aside):
            return None
        deadline.check()
        began = time.monotonic()
        if self._left <= 0 or not _places.acquire(blocking=False):
            _CUT.inc()
            return None
        if not BREAKER.allows(began):
            _places.release()
            _CUT.inc()
            return None
        found = _fetched(self._service, subject, self._left)
        self._left -= time.monotonic() - began
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
