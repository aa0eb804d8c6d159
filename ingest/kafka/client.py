"""Creates clients of Kafka with common settings and a log, and explains their errors.

Begin with `create_client` and `ConnectionStatus`.
"""

import logging
import re
import time
from collections.abc import Callable, Mapping
from operator import methodcaller
from typing import Any, Final, TypeVar

import confluent_kafka as ck

from history.common.explained_errors import ExplainedError

# Most errors of librdkafka begin with the address of the broker.
_ADDRESS: Final = re.compile(r"^(?:\w+://)?(\S+?)/\S+?: (.*)", re.DOTALL)
_DURATION: Final = re.compile(r" \(after \d+ms in state \w+\)?.*", re.DOTALL)
# Errors without an address. They sum up earlier errors that had one.
_REPETITION: Final = re.compile(r"\d+/\d+ brokers are down|No brokers configured")

# Sentences for people by a pattern in librdkafka's error. The first pattern that matches counts.
# librdkafka has the same code for most of these causes, so only its texts tell them apart.
_SENTENCES: Final[Mapping[str, str]] = {
    r"Unsupported SASL mechanism|(?<!SSL )handshake failed": "Kafka at {place} does not offer the "
    "mechanism of ANNALS_KAFKA_SASL_MECHANISM, or asks for no password at all: correct it and "
    "ANNALS_KAFKA_SECURITY_PROTOCOL",
    r"authentication|Authentication|credentials": "Kafka at {place} refuses the login: correct "
    "ANNALS_KAFKA_SASL_USERNAME and ANNALS_KAFKA_SASL_PASSWORD, or ANNALS_LIBRDKAFKA_FILE",
    r"Connection refused": "no broker listens at {place}",
    r"Failed to resolve": "no server has the name of the host in {place}",
    r"timed out|timeout": "Kafka at {place} does not answer",
    r"security.protocol|might require SASL|ApiVersion|Receive failed|Disconnected": "Kafka at "
    "{place} closes the connection: is ANNALS_KAFKA_SECURITY_PROTOCOL the right one",
    r"SSL handshake|ssl|certificate": "Kafka at {place} and this process cannot set up TLS: "
    "correct ANNALS_KAFKA_SECURITY_PROTOCOL and ANNALS_KAFKA_SSL_CA_LOCATION ({message})",
}


def explain_connection_error(text: str) -> str | None:
    """Return a sentence for a connection error.

    Return None for an error that only sums up other errors, such as "2/2 brokers are down".
    """
    if _REPETITION.fullmatch(text):
        return None
    match = _ADDRESS.match(text)
    place, message = match.groups() if match else ("the brokers", text)
    message = _DURATION.sub("", message)
    for pattern, sentence in _SENTENCES.items():
        if re.search(pattern, message):
            return sentence.format(place=place, message=message)
    return f"Kafka at {place}: {message}"


REPEAT_LOG_SECONDS = 10.0
_NUMBERS = re.compile(r"\d+")


class ThrottledLog(logging.Filter):
    """A filter that lets each log message pass at most once in REPEAT_LOG_SECONDS.

    Messages that differ only in numbers count as the same message.

    Args:
        read_clock: Returns seconds of a clock that never goes back.
    """

    def __init__(self, read_clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._read_clock = read_clock
        self._passed: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        text = _NUMBERS.sub("#", record.getMessage())
        now = self._read_clock()
        if now - self._passed.get(text, -REPEAT_LOG_SECONDS) < REPEAT_LOG_SECONDS:
            return False
        if len(self._passed) >= 1_000:
            self._passed.clear()
        self._passed[text] = now
        return True


# The logger for librdkafka's messages. In an outage, they repeat dozens of times a second.
client_logger = logging.getLogger(__name__)


def _should_log(record: logging.LogRecord) -> bool:
    """Return False for connection errors: ConnectionStatus logs them in clearer words."""
    facility = record.args[0] if isinstance(record.args, tuple) and record.args else ""
    return facility not in ("FAIL", "ERROR") or client_logger.isEnabledFor(logging.DEBUG)


client_logger.addFilter(_should_log)
client_logger.addFilter(ThrottledLog())

Config = dict[str, Any]

# Settings of every client. Settings from the environment override them.
COMMON_CONFIG: Config = {
    "client.id": "annals",
    # With the default of 10 seconds a client notices late that its broker is back.
    "reconnect.backoff.max.ms": 1_000,
}
TIMEOUT_SECONDS = 10.0
# A login counts as refused for this long after the last refusal. A refused client connects again
# at least every second, and reports the refusal each time.
REFUSED_SECONDS: Final = 35.0

PROTOCOL: Final = "ANNALS_KAFKA_SECURITY_PROTOCOL"
SETTING_NAMES: Final = "ANNALS_KAFKA_* or ANNALS_LIBRDKAFKA_FILE"


T = TypeVar("T")


class UnreachableError(ExplainedError):
    """Raised when no broker answers in time. Ask again later."""

    def __init__(self, error: ck.KafkaException | str) -> None:
        super().__init__(error if isinstance(error, str) else error.args[0].str())


class RefusedError(ExplainedError):
    """Raised when the brokers do not accept the login. Asking again does not help."""


class NothingToReadError(ExplainedError):
    """Raised at the end of a run with `until_idle` that could not read.

    The brokers have none of the topics, or do not let the login of this process read.
    """


class WrongSettingError(ExplainedError, ValueError):
    """Raised when librdkafka does not accept a setting. The message names the setting."""


class ConnectionStatus:
    """The state of a client's connections: the last error, and whether a broker refused the login.

    Args:
        log_suffix: A text that is logged after each error.
    """

    def __init__(self, log_suffix: str = "") -> None:
        self.reason = ""  # the last error as a sentence
        self.place = "the brokers"  # the addresses of the brokers, for sentences
        self._log_suffix = log_suffix
        self._refused_at = -REFUSED_SECONDS

    def note_error(self, error: ck.KafkaError) -> None:
        """Record and log an error. The Kafka client calls this method as `error_cb`."""
        sentence = explain_connection_error(error.str())
        level = logging.WARNING
        if error.code() == ck.KafkaError._AUTHENTICATION:
            self._refused_at, level = time.monotonic(), logging.ERROR
        if sentence is not None:
            self.reason = sentence
            client_logger.log(level, "%s%s", sentence, self._log_suffix)

    @property
    def refused(self) -> bool:
        """Whether a broker has refused the login in the last REFUSED_SECONDS."""
        return time.monotonic() - self._refused_at < REFUSED_SECONDS

    def note_accepted_login(self) -> None:
        """Forget earlier refusals: a broker has accepted the login."""
        self._refused_at = -REFUSED_SECONDS

    def make_unreachable_error(self, client: Any, error: ck.KafkaException) -> UnreachableError:
        """Return the error for a request that no broker answered in time."""
        client.poll(0)  # delivers pending errors to note_error
        if error.args[0].code() in (ck.KafkaError._TRANSPORT, ck.KafkaError._TIMED_OUT):
            silence = f"Kafka at {self.place} does not answer. Is {PROTOCOL} the right one"
            return UnreachableError(self.reason or silence)
        return UnreachableError(self.reason or error.args[0].str())


def create_client(
    kind: Callable[..., T], settings: Mapping[str, Any], status: ConnectionStatus | None = None
) -> T:
    """Create a client with these settings.

    Args:
        kind: The class of the client.
        status: The object that notes the errors of the client's connections; None for a new one.

    Raises:
        WrongSettingError: librdkafka does not accept the settings.
    """
    connection_status = status or ConnectionStatus()
    connection_status.place = settings.get("bootstrap.servers", connection_status.place)
    try:
        return kind({**settings, "error_cb": connection_status.note_error}, logger=client_logger)
    except ck.KafkaException as error:
        message = error.args[0].str()
    problem = _explain_setting_error(message, settings)
    raise WrongSettingError(
        f"Kafka's client does not accept the settings of {SETTING_NAMES}: {problem}"
    )


def _explain_setting_error(message: str, settings: Mapping[str, Any]) -> str:
    """Return a sentence for librdkafka's error about a setting. It never quotes a password."""
    if match := re.search(r"(\S+\.location) failed", message):
        file = settings.get(match[1], "nothing")
        return f"{match[1]} is {file}, which cannot be read as the file that it should be"
    return message.partition("client: ")[2] or message


# How long to wait before a request to brokers that did not answer is repeated.
ASK_AGAIN_SECONDS = 2.0


class StuckMemberTimer:
    """Decides when a member of a group counts as stuck.

    A member is stuck if it has had no partitions for some time although the brokers answered.

    Args:
        seconds: How long this time is at first. It doubles whenever the member is stuck, because a
            member that joins again disturbs the other members.
    """

    def __init__(self, seconds: float, now: float) -> None:
        self._seconds = seconds
        self.begin(now)

    def begin(self, now: float, are_brokers_up: bool = True) -> None:
        """Begin to wait for partitions. Call this method when the member loses its partitions.

        Args:
            are_brokers_up: Whether the brokers are known to answer.
        """
        self._since: float | None = now
        self._wait, self._may_be_away = self._seconds, not are_brokers_up

    def end(self) -> None:
        """Stop waiting for partitions. Call this method when the member gets partitions."""
        self._since = None

    def is_due(self, now: float) -> bool:
        """Return whether the caller should now send a request to the brokers.

        If the brokers then answer the request, the caller calls `note_answered`. If they do not
        answer it in time, the caller calls `note_unanswered`.
        """
        wait = min(ASK_AGAIN_SECONDS, self._wait) if self._may_be_away else self._wait
        return self._since is not None and now - self._since >= wait

    def note_unanswered(self, now: float) -> None:
        """Record that the brokers did not answer a request in time."""
        self._since, self._may_be_away = now, True

    def note_answered(self, now: float) -> bool:
        """Record that the brokers answered a request, and return whether the member is stuck.

        The caller sends the request because the member waits too long for partitions. If the
        brokers were known to be up before, the member is stuck: no outage explains the wait.
        Otherwise the member gets more time to receive partitions.
        """
        is_stuck = not self._may_be_away
        self._since, self._may_be_away = now, False
        if is_stuck:
            self._wait *= 2
        return is_stuck


Headers = tuple[tuple[str, bytes | None], ...]

# Calls raw.headers(). Python optimizes a direct call, and then does not notice the client's error.
_call_headers = methodcaller("headers")
# The name that stands for headers which the client cannot decode.
NOT_READABLE = "(not readable)"


def read_headers(raw: ck.Message) -> Headers:
    """Return the headers of a message as pairs of a name and a value.

    If a name is not UTF-8, the client cannot read any header of the message. The result is then
    the single pair (NOT_READABLE, None).
    """
    try:
        return tuple(_call_headers(raw) or ())
    except (SystemError, UnicodeDecodeError):
        return ((NOT_READABLE, None),)
