"""Asks the old service for one timeline, page by page, within a time and a size; from all requests
together only some times at once, and not for a while after failures in a row.

OldServiceError   it cannot be asked, does not answer, or refuses
"""

import logging
import threading
import time
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, TypeAlias
from urllib.parse import quote

import requests
from django.conf import settings

from history import metrics
from history.base import clock, http_call
from history.failure.complaints import Complaint, FileError
from history.fallback.answer import WrongAnswerError, part, says_nothing_there
from history.versions import Subject, VersionRow

log = logging.getLogger(__name__)

PAGE_SIZE: Final = 500
# All pages of one timeline together. They are in memory while a request is answered.
MOST_BYTES: Final = 32 * 1024 * 1024
PREFIX: Final = "/api/v1"
# Calls at a time. One that hangs keeps its place until its sockets are shut down.
PLACES: Final = 8
# The name of a host is looked up without a time limit.
GRACE_SECONDS: Final = 0.05
FAILURES: Final = 3  # in a row, before nobody calls
PAUSE_SECONDS: Final = 15.0  # until one call tries again


class OldServiceError(Complaint):
    """The message says why, for the log: no address of a document, no token, no values."""


@dataclass(frozen=True, slots=True)
class Service:
    """Where the old service is. url: without a slash at its end. seconds: for one request."""

    url: str
    seconds: float
    token_file: Path | None = None
    ca_file: Path | None = None

    def address(self, subject: Subject) -> str:
        """The address of a timeline."""
        id = quote(subject.id, safe="")
        base = self.url if self.url.endswith(PREFIX) else self.url + PREFIX
        if subject.kind is None:
            return f"{base}/applications/{id}/history"
        return f"{base}/history/{subject.kind.name}/{id}"

    def session(self) -> http_call.Session:
        """Raises FileError if the token cannot be read."""
        made = http_call.Session(self.ca_file)
        # No proxy, no .netrc: the token goes to this address and nowhere else.
        made.trust_env = False
        made.headers["Accept"] = "application/json"
        if self.token_file is not None:
            made.headers["Authorization"] = f"Bearer {http_call.token(self.token_file)}"
        return made


def service() -> Service | None:
    """The old service; None where there is none, or its last day is over, in UTC."""
    given = settings.ANNALS
    until = given.fallback_until
    if not given.fallback_url or (until and clock.now().astimezone(UTC).date() > until):
        return None
    url = given.fallback_url.rstrip("/")
    return Service(url, given.fallback_seconds, given.fallback_token_file, given.fallback_ca_file)


def fetch(service: Service, subject: Subject, seconds: float) -> list[VersionRow]:
    """All versions of a timeline, each number of an entity once, in the order of the answer.
    Raises OldServiceError, WrongAnswerError."""
    found: dict[tuple[str, str, int], VersionRow] = {}
    tokens: set[str] = set()
    address, left, until = service.address(subject), MOST_BYTES, time.monotonic() + seconds
    parameters = {"pageSize": str(PAGE_SIZE), "order": "desc", "include": "entity"}
    try:
        with service.session() as session:
            while True:
                asked = {"params": parameters, "timeout": until - time.monotonic()}
                status, body = session.ask("GET", address, left, until, (200, 404), **asked)
                if status == 404 and says_nothing_there(body):
                    return list(found.values())
                if status != 200:
                    raise OldServiceError(f"it answers {status}")
                left -= len(body)
                page = part(body, subject)
                for each in page.versions:
                    found.setdefault((each.entity.name, each.id, each.version), each)
                if page.next_token is None:
                    return list(found.values())
                # A page may repeat what is known: twins, or a version that came meanwhile.
                if page.next_token in tokens or not page.versions:
                    raise WrongAnswerError("its pages do not end")
                tokens.add(page.next_token)
                parameters["pageToken"] = page.next_token
    except http_call.TooLargeError:
        raise WrongAnswerError(f"it answers more than {MOST_BYTES:,} bytes") from None
    except FileError as error:
        raise OldServiceError(str(error)) from None
    except (requests.RequestException, OSError, ValueError) as error:
        raise OldServiceError(f"it does not answer ({type(error).__name__})") from None


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
Outcome: TypeAlias = list[VersionRow] | WrongAnswerError | OldServiceError


def call(service: Service, subject: Subject, seconds: float) -> list[VersionRow] | None:
    """The versions of a timeline; None where the old service fails, or is not called now."""
    place = seconds > 0 and _places.acquire(blocking=False)
    if not place or not BREAKER.allows(time.monotonic()):
        if place:
            _places.release()
        _CUT.inc()
        return None
    done: SimpleQueue[Outcome] = SimpleQueue()
    # In a thread of its own: nothing else can leave a call that does not end.
    asked = (done, service, subject, seconds)
    threading.Thread(target=_put, args=asked, daemon=True).start()
    try:
        found = done.get(timeout=seconds + GRACE_SECONDS)
    except Empty:
        found = OldServiceError("it does not answer in time")
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


def _put(done: SimpleQueue[Outcome], service: Service, subject: Subject, seconds: float) -> None:
    try:
        found: Outcome = fetch(service, subject, seconds)
    except (WrongAnswerError, OldServiceError) as error:
        found = error
    except BaseException as error:
        found = OldServiceError(f"the call failed ({type(error).__name__})")
    _places.release()
    done.put(found)
