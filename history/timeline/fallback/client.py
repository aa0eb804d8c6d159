"""Asks the old service for one timeline, page by page, within limits of time and size.

Begin with `call_in_thread`. All requests of this process together make at most MAX_CALLS calls at
a time. After several failures in a row, no call is made for a while.
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
from history.common.explained_errors import ExplainedError, FileError
from history.store.versions import SourceRow, TimelineSubject
from history.timeline.fallback.answer import WrongAnswerError, has_no_document, parse_answer_page

log = logging.getLogger(__name__)

PAGE_SIZE: Final = 500
# All pages of one timeline together. They are in memory while a request is answered.
MAX_TIMELINE_BYTES: Final = 32 * 1024 * 1024
PREFIX: Final = "/api/v1"
# How many calls may run at a time. A call that hangs counts until its sockets are shut down.
MAX_CALLS: Final = 8
# How long the caller waits after the time limit of a call is over. The limit does not include the
# time for looking up the name of the host.
GRACE_SECONDS: Final = 0.05
# After this many failures in a row, no call is made for PAUSE_SECONDS.
FAILURES_TO_OPEN: Final = 3
PAUSE_SECONDS: Final = 15.0


class OldServiceError(ExplainedError):
    """Raised when the old service cannot be asked, does not answer, or refuses.

    The message goes to the log, so it never has the id of a document, a token, or values.
    """


@dataclass(frozen=True, slots=True)
class OldServiceEndpoint:
    """Where the old service is, and how to call it."""

    url: str  # without a slash at the end
    seconds: float  # for all calls of one HTTP request together
    token_file: Path | None = None
    ca_file: Path | None = None

    def make_address(self, subject: TimelineSubject) -> str:
        """Return the address of the timeline of a document or application."""
        id = quote(subject.id, safe="")
        base = self.url if self.url.endswith(PREFIX) else self.url + PREFIX
        if subject.kind is None:
            return f"{base}/applications/{id}/history"
        return f"{base}/history/{subject.kind.name}/{id}"

    def make_session(self) -> http_call.HttpSession:
        """Open a session that sends the token.

        Raises:
            FileError: The token file cannot be read.
        """
        session = http_call.HttpSession(self.ca_file)
        # No proxy, no .netrc: the token goes to this address and nowhere else.
        session.trust_env = False
        session.headers["Accept"] = "application/json"
        if self.token_file is not None:
            session.headers["Authorization"] = f"Bearer {http_call.read_token(self.token_file)}"
        return session


def load_endpoint() -> OldServiceEndpoint | None:
    """Return the endpoint in the settings.

    Returns:
        None if the settings have no endpoint, or if its last day (UTC) is over.
    """
    annals_settings = settings.ANNALS
    until = annals_settings.fallback_until
    if not annals_settings.fallback_url or (until and clock.now().astimezone(UTC).date() > until):
        return None
    url = annals_settings.fallback_url.rstrip("/")
    return OldServiceEndpoint(
        url=url,
        seconds=annals_settings.fallback_seconds,
        token_file=annals_settings.fallback_token_file,
        ca_file=annals_settings.fallback_ca_file,
    )


def fetch_timeline(
    endpoint: OldServiceEndpoint, subject: TimelineSubject, seconds: float
) -> list[SourceRow]:
    """Return all versions of a timeline, in the order of the answer.

    If a document has two versions of one number, only the first one is returned.

    Args:
        seconds: How long all pages together may take.

    Raises:
        OldServiceError: The old service cannot be asked, does not answer, or refuses.
        WrongAnswerError: The answer is not the timeline that was asked for.
    """
    # By kind, id and number.
    rows: dict[tuple[str, str, int], SourceRow] = {}
    tokens: set[str] = set()
    address = endpoint.make_address(subject)
    bytes_left, until = MAX_TIMELINE_BYTES, time.monotonic() + seconds
    parameters = {"pageSize": str(PAGE_SIZE), "order": "desc", "include": "entity"}
    try:
        with endpoint.make_session() as session:
            while True:
                options = {"params": parameters, "timeout": until - time.monotonic()}
                status, body = session.ask("GET", address, bytes_left, until, (200, 404), **options)
                if status == 404 and has_no_document(body):
                    return list(rows.values())
                if status != 200:
                    raise OldServiceError(f"the old service answered {status}")
                bytes_left -= len(body)
                page = parse_answer_page(body, subject)
                for row in page.versions:
                    rows.setdefault((row.entity.name, row.id, row.version), row)
                if page.next_token is None:
                    return list(rows.values())
                # A page may repeat versions. But after a repeated token or an empty page, the pages
                # would never end.
                if page.next_token in tokens or not page.versions:
                    raise WrongAnswerError(
                        "the pages of the old service do not end: a page token is repeated, or a "
                        "page is empty"
                    )
                tokens.add(page.next_token)
                parameters["pageToken"] = page.next_token
    except http_call.TooLargeError:
        raise WrongAnswerError(
            f"the old service answered more than {MAX_TIMELINE_BYTES:,} bytes"
        ) from None
    except FileError as error:
        raise OldServiceError(str(error)) from None
    except (requests.RequestException, OSError, ValueError) as error:
        raise OldServiceError(f"the old service does not answer ({type(error).__name__})") from None


class CircuitBreaker:
    """A breaker that stops calls to the old service after FAILURES_TO_OPEN failures in a row.

    It may be called from several threads.

    A closed breaker allows every call. An open breaker allows one call every PAUSE_SECONDS: if the
    call succeeds, the breaker closes. Each parameter `now` is in seconds of a monotonic clock.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures = 0  # in a row
        self._next_call_at = 0.0  # when an open breaker allows the next call

    @property
    def is_open(self) -> bool:
        """Whether the breaker is open. It stays open during the one call that it allows."""
        return self._failures >= FAILURES_TO_OPEN

    def allow_call(self, now: float) -> bool:
        """Return whether the old service may be called now.

        If so, the caller must then report the result by `note_success` or `note_failure`.
        """
        with self._lock:
            if not self.is_open:
                return True
            if now < self._next_call_at:
                return False
            self._next_call_at = now + PAUSE_SECONDS
            return True

    def note_success(self) -> None:
        """Forget the failed calls, because a call was answered. This closes the breaker."""
        with self._lock:
            self._failures = 0

    def note_failure(self, now: float) -> None:
        """Count a failed call. The breaker opens after FAILURES_TO_OPEN failures in a row."""
        with self._lock:
            self._failures += 1
            self._next_call_at = now + PAUSE_SECONDS

    def reset(self) -> None:
        """Forget all failures. A test calls this at its beginning and at its end."""
        self.note_success()


# Both are shared by all HTTP requests of the process. After the calls of some requests have failed,
# the others need not wait for the old service; and MAX_CALLS limits all of them together.
BREAKER: Final = CircuitBreaker()
CALL_PLACES: Final = threading.BoundedSemaphore(MAX_CALLS)

_ANSWERED, _FAILED, _CUT_OFF = (
    metrics.FALLBACK_REQUESTS.labels(outcome) for outcome in ("answered", "failed", "cut")
)
CallOutcome: TypeAlias = list[SourceRow] | WrongAnswerError | OldServiceError


def call_in_thread(
    endpoint: OldServiceEndpoint, subject: TimelineSubject, seconds: float
) -> list[SourceRow] | None:
    """Return the versions of a timeline, or None if the old service failed or was not called.

    Args:
        seconds: How long the call may take.
    """
    has_place = seconds > 0 and CALL_PLACES.acquire(blocking=False)
    if not has_place or not BREAKER.allow_call(time.monotonic()):
        if has_place:
            CALL_PLACES.release()
        _CUT_OFF.inc()
        return None
    outcomes: SimpleQueue[CallOutcome] = SimpleQueue()
    # The call runs in a thread of its own, so that the HTTP request can go on while the call hangs.
    arguments = (outcomes, endpoint, subject, seconds)
    threading.Thread(target=_put_outcome, args=arguments, daemon=True).start()
    try:
        outcome = outcomes.get(timeout=seconds + GRACE_SECONDS)
    except Empty:
        outcome = OldServiceError("the old service does not answer in time")
    if isinstance(outcome, OldServiceError):
        BREAKER.note_failure(time.monotonic())
    else:  # a wrong answer about one document must not stop calls about others
        BREAKER.note_success()
    if isinstance(outcome, Exception):
        _FAILED.inc()
        log.warning("a timeline lacks versions of the old service: %s", outcome)
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
        outcome = OldServiceError(f"the call to the old service failed ({type(error).__name__})")
    CALL_PLACES.release()
    outcomes.put(outcome)
