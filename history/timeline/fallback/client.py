"""Asks the old service for one timeline, page by page, within a time and a size.

All requests together make at most MAX_CALLS calls at a time, and none for a while after several
failures in a row.

OldServiceError   The old service cannot be asked, does not answer, or refuses.
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
from history.common import clock, http_call
from history.common.complaints import ExplainedError, FileError
from history.store.versions import SourceRow, TimelineSubject
from history.timeline.fallback.answer import WrongAnswerError, has_no_document, parse_answer_page

log = logging.getLogger(__name__)

PAGE_SIZE: Final = 500
# All pages of one timeline together. They are in memory while a request is answered.
MAX_TIMELINE_BYTES: Final = 32 * 1024 * 1024
PREFIX: Final = "/api/v1"
# Calls at a time. One that hangs keeps its place until its sockets are shut down.
MAX_CALLS: Final = 8
# The name of a host is looked up without a time limit.
GRACE_SECONDS: Final = 0.05
FAILURES_TO_OPEN: Final = 3  # in a row, before nobody calls
PAUSE_SECONDS: Final = 15.0  # until one call tries again


class OldServiceError(ExplainedError):
    """The message is for the log: it has no address of a document, no token and no values."""


@dataclass(frozen=True, slots=True)
class OldServiceEndpoint:
    """Where the old service is. url: without a slash at its end. seconds: for one request."""

    url: str
    seconds: float
    token_file: Path | None = None
    ca_file: Path | None = None

    def make_address(self, subject: TimelineSubject) -> str:
        """Return the address of a timeline."""
        id = quote(subject.id, safe="")
        base = self.url if self.url.endswith(PREFIX) else self.url + PREFIX
        if subject.kind is None:
            return f"{base}/applications/{id}/history"
        return f"{base}/history/{subject.kind.name}/{id}"

    def make_session(self) -> http_call.HttpSession:
        """Open a session with the token.

        Raises:
            FileError: The token cannot be read.
        """
        session = http_call.HttpSession(self.ca_file)
        # No proxy, no .netrc: the token goes to this address and nowhere else.
        session.trust_env = False
        session.headers["Accept"] = "application/json"
        if self.token_file is not None:
            session.headers["Authorization"] = f"Bearer {http_call.read_token(self.token_file)}"
        return session


def load_endpoint() -> OldServiceEndpoint | None:
    """Return where the old service is; None if there is none, or its last day is over in UTC."""
    annals_settings = settings.ANNALS
    until = annals_settings.fallback_until
    if not annals_settings.fallback_url or (until and clock.now().astimezone(UTC).date() > until):
        return None
    url = annals_settings.fallback_url.rstrip("/")
    return OldServiceEndpoint(
        url,
        annals_settings.fallback_seconds,
        annals_settings.fallback_token_file,
        annals_settings.fallback_ca_file,
    )


def fetch_timeline(
    endpoint: OldServiceEndpoint, subject: TimelineSubject, seconds: float
) -> list[SourceRow]:
    """Return all versions of a timeline in the order of the answer, each number of an entity once.

    Raises:
        OldServiceError, WrongAnswerError: See the module.
    """
    rows: dict[tuple[str, str, int], SourceRow] = {}
    tokens: set[str] = set()
    address, bytes_left, until = (
        endpoint.make_address(subject),
        MAX_TIMELINE_BYTES,
        time.monotonic() + seconds,
    )
    parameters = {"pageSize": str(PAGE_SIZE), "order": "desc", "include": "entity"}
    try:
        with endpoint.make_session() as session:
            while True:
                options = {"params": parameters, "timeout": until - time.monotonic()}
                status, body = session.ask("GET", address, bytes_left, until, (200, 404), **options)
                if status == 404 and has_no_document(body):
                    return list(rows.values())
                if status != 200:
                    raise OldServiceError(f"it answers {status}")
                bytes_left -= len(body)
                page = parse_answer_page(body, subject)
                for row in page.versions:
                    rows.setdefault((row.entity.name, row.id, row.version), row)
                if page.next_token is None:
                    return list(rows.values())
                # A page may repeat what is known: twins, or a version that came meanwhile.
                if page.next_token in tokens or not page.versions:
                    raise WrongAnswerError("its pages do not end")
                tokens.add(page.next_token)
                parameters["pageToken"] = page.next_token
    except http_call.TooLargeError:
        raise WrongAnswerError(f"it answers more than {MAX_TIMELINE_BYTES:,} bytes") from None
    except FileError as error:
        raise OldServiceError(str(error)) from None
    except (requests.RequestException, OSError, ValueError) as error:
        raise OldServiceError(f"it does not answer ({type(error).__name__})") from None


class CircuitBreaker:
    """Stops calls to the old service after FAILURES_TO_OPEN in a row; thread-safe.

    Closed, it lets every call go. Open, it lets one call go each PAUSE_SECONDS: its outcome closes
    the breaker or keeps it open. `now` is in seconds of a clock that never goes back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures = 0
        self._again = 0.0  # when the next call may go while it is open

    @property
    def is_open(self) -> bool:
        """Whether calls are cut off; also while one call tries again."""
        return self._failures >= FAILURES_TO_OPEN

    def allow_call(self, now: float) -> bool:
        """Return whether a call may go now. The caller then reports note_success or
        note_failure.
        """
        with self._lock:
            if not self.is_open:
                return True
            if now < self._again:
                return False
            self._again = now + PAUSE_SECONDS
            return True

    def note_success(self) -> None:
        with self._lock:
            self._failures = 0

    def note_failure(self, now: float) -> None:
        with self._lock:
            self._failures += 1
            self._again = now + PAUSE_SECONDS

    def reset(self) -> None:
        """Forget all failures. Tests begin and end with it."""
        self.note_success()


# The breaker and the places are those of the process: a failure that one request meets spares the
# others from waiting for it, and MAX_CALLS is for all requests together.
BREAKER: Final = CircuitBreaker()
CALL_PLACES: Final = threading.BoundedSemaphore(MAX_CALLS)

_ANSWERED, _FAILED, _CUT_OFF = (
    metrics.FALLBACK_REQUESTS.labels(outcome) for outcome in ("answered", "failed", "cut")
)
CallOutcome: TypeAlias = list[SourceRow] | WrongAnswerError | OldServiceError


def call_in_thread(
    endpoint: OldServiceEndpoint, subject: TimelineSubject, seconds: float
) -> list[SourceRow] | None:
    """Return the versions of a timeline; None if the old service fails, or is not called now."""
    has_place = seconds > 0 and CALL_PLACES.acquire(blocking=False)
    if not has_place or not BREAKER.allow_call(time.monotonic()):
        if has_place:
            CALL_PLACES.release()
        _CUT_OFF.inc()
        return None
    outcomes: SimpleQueue[CallOutcome] = SimpleQueue()
    # In a thread of its own: nothing else can leave a call that does not end.
    arguments = (outcomes, endpoint, subject, seconds)
    threading.Thread(target=_put_outcome, args=arguments, daemon=True).start()
    try:
        outcome = outcomes.get(timeout=seconds + GRACE_SECONDS)
    except Empty:
        outcome = OldServiceError("it does not answer in time")
    if isinstance(outcome, OldServiceError):
        BREAKER.note_failure(time.monotonic())
    else:  # one broken document cuts the others off from nothing
        BREAKER.note_success()
    if isinstance(outcome, Exception):
        _FAILED.inc()
        log.warning("the old service: %s", outcome)
        return None
    _ANSWERED.inc()
    return outcome


def _put_outcome(
    outcomes: SimpleQueue[CallOutcome],
    endpoint: OldServiceEndpoint,
    subject: TimelineSubject,
    seconds: float,
) -> None:
    try:
        outcome: CallOutcome = fetch_timeline(endpoint, subject, seconds)
    except (WrongAnswerError, OldServiceError) as error:
        outcome = error
    except BaseException as error:
        outcome = OldServiceError(f"the call failed ({type(error).__name__})")
    CALL_PLACES.release()
    outcomes.put(outcome)
