"""What all clients of Kafka share: their settings, their log, and their errors as sentences."""

import logging
import re
import time
from collections.abc import Callable, Mapping
from operator import methodcaller
from typing import Any, Final, TypeVar

import confluent_kafka as ck

from history.common.complaints import ExplainedError

_PLACE: Final = re.compile(r"^(?:\w+://)?(\S+?)/\S+?: (.*)", re.DOTALL)
_AFTER: Final = re.compile(r" \(after \d+ms in state \w+\)?.*", re.DOTALL)
# Messages without an address, which repeat what messages with an address said before.
_NOTHING: Final = re.compile(r"\d+/\d+ brokers are down|No brokers configured")

# Patterns of librdkafka's messages with their meaning; the first that matches counts.
_MEANINGS: Final[Mapping[str, str]] = {
    r"Unsupported SASL mechanism|handshake failed": "Kafka at {place} does not offer the "
    "mechanism of ANNALS_KAFKA_SASL_MECHANISM, or asks for no password at all: correct it and "
    "ANNALS_KAFKA_SECURITY_PROTOCOL",
    r"authentication|Authentication|credentials": "Kafka at {place} refuses the login: correct "
    "ANNALS_KAFKA_SASL_USERNAME and ANNALS_KAFKA_SASL_PASSWORD, or ANNALS_LIBRDKAFKA_FILE",
    r"Connection refused": "no broker listens at {place}",
    r"Failed to resolve": "no server has the name of the host in {place}",
    r"timed out|timeout": "Kafka at {place} does not answer",
    r"security.protocol|might require SASL|ApiVersion|Receive failed|Disconnected": "Kafka at "
    "{place} closes the connection: is ANNALS_KAFKA_SECURITY_PROTOCOL the right one",
    r"SSL handshake|ssl|certificate": "Kafka at {place} and this process agree on no TLS: correct "
    "ANNALS_KAFKA_SECURITY_PROTOCOL and ANNALS_KAFKA_SSL_CA_LOCATION ({said})",
}


def explain_connection_error(text: str) -> str | None:
    """Return a sentence for an error of a connection, or None if earlier errors said it already."""
    if _NOTHING.fullmatch(text):
        return None
    match = _PLACE.match(text)
    place, message = match.groups() if match else ("the brokers", text)
    message = _AFTER.sub("", message)
    for pattern, sentence in _MEANINGS.items():
        if re.search(pattern, message):
            return sentence.format(place=place, message=message)
    return f"Kafka at {place}: {message}"


REPEAT_LOG_SECONDS = 10.0
_NUMBERS = re.compile(r"\d+")


class ThrottledLog(logging.Filter):
    """Passes each message once in REPEAT_LOG_SECONDS.

    Messages that differ only in numbers count as the same.

    Args:
        read_clock: Returns seconds that never go back.
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


# For librdkafka's own messages, which in an outage repeat dozens of times a second.
client_logger = logging.getLogger(__name__)


def _is_not_said_elsewhere(record: logging.LogRecord) -> bool:
    """Return whether a message should be logged: ConnectionStatus logs errors in clearer words."""
    facility = record.args[0] if isinstance(record.args, tuple) and record.args else ""
    return facility not in ("FAIL", "ERROR") or client_logger.isEnabledFor(logging.DEBUG)


client_logger.addFilter(_is_not_said_elsewhere)
client_logger.addFilter(ThrottledLog())

Config = dict[str, Any]

# Settings of every client. Those from the environment override them.
COMMON_CONFIG: Config = {
    "client.id": "annals",
    # With the default of 10 seconds a client notices late that its broker is back.
    "reconnect.backoff.max.ms": 1_000,
}
TIMEOUT_SECONDS = 10.0
# A refused client connects again at least every second and reports the refusal each time.
REFUSED_SECONDS: Final = 35.0

PROTOCOL: Final = "ANNALS_KAFKA_SECURITY_PROTOCOL"
SETTING_NAMES: Final = "ANNALS_KAFKA_* or ANNALS_LIBRDKAFKA_FILE"


T = TypeVar("T")


class Unreachable(ExplainedError):
    """Raised when no broker answers in time. Ask again later."""

    def __init__(self, error: ck.KafkaException | str) -> None:
        super().__init__(error if isinstance(error, str) else error.args[0].str())


class RefusedError(ExplainedError):
    """Raised when the brokers do not accept the login. Asking again does not help."""


class NothingToReadError(ExplainedError):
    """Raised where a run that has an end would wait for nothing.

    The brokers have none of the topics, or do not let the login of this process read.
    """


class WrongSettingError(ExplainedError, ValueError):
    """Raised when librdkafka does not accept its settings. The message names the wrong one."""


class ConnectionStatus:
    """Why a client has no connection, as its last error says.

    Args:
        goes_on: A sentence that is logged after each error.
    """

    def __init__(self, goes_on: str = "") -> None:
        self.why = ""
        self.place = "the brokers"
        self._goes_on = goes_on
        self._refused_at = -REFUSED_SECONDS

    def note_error(self, error: ck.KafkaError) -> None:
        """Note and log an error. This is the client's `error_cb`."""
        sentence = explain_connection_error(error.str())
        level = logging.WARNING
        if error.code() == ck.KafkaError._AUTHENTICATION:
            self._refused_at, level = time.monotonic(), logging.ERROR
        if sentence is not None:
            self.why = sentence
            client_logger.log(level, "%s%s", sentence, self._goes_on)

    @property
    def refused(self) -> bool:
        """Whether a broker has refused the login within REFUSED_SECONDS."""
        return time.monotonic() - self._refused_at < REFUSED_SECONDS

    def note_accepted_login(self) -> None:
        """Note that a broker has accepted the login."""
        self._refused_at = -REFUSED_SECONDS

    def make_unreachable_error(self, client: Any, error: ck.KafkaException) -> Unreachable:
        """Return the error for a request that no broker answered in time."""
        client.poll(0)  # delivers pending errors to note_error
        if error.args[0].code() in (ck.KafkaError._TRANSPORT, ck.KafkaError._TIMED_OUT):
            silent = f"Kafka at {self.place} does not answer. Is {PROTOCOL} the right one"
            return Unreachable(self.why or silent)
        return Unreachable(self.why or error.args[0].str())


def create_client(
    kind: Callable[..., T], settings: Mapping[str, Any], status: ConnectionStatus | None = None
) -> T:
    """Create a client with these settings. Raises WrongSettingError."""
    connection_status = status or ConnectionStatus()
    connection_status.place = settings.get("bootstrap.servers", connection_status.place)
    try:
        return kind({**settings, "error_cb": connection_status.note_error}, logger=client_logger)
    except ck.KafkaException as error:
        message = error.args[0].str()
    problem = _explain_setting_error(message, settings)
    raise WrongSettingError(
        f"Kafka's client does not take the settings of {SETTING_NAMES}: {problem}"
    )


def _explain_setting_error(message: str, settings: Mapping[str, Any]) -> str:
    """Return a sentence for librdkafka's error about a setting, without values of passwords."""
    if match := re.search(r"(\S+\.location) failed", message):
        file = settings.get(match[1], "nothing")
        return f"{match[1]} is {file}, which is no file that can be read as what it should be"
    return message.partition("client: ")[2] or message


# How long to wait before asking brokers again that do not answer.
ASK_AGAIN_SECONDS = 2.0


class StuckMemberTimer:
    """Decides when a member of a group counts as stuck.

    A member is stuck if it has no partitions although the brokers answered for a whole wait.

    Args:
        seconds: The first wait. It doubles after each time, so that members do not act in turn.
    """

    def __init__(self, seconds: float, now: float) -> None:
        self._seconds = seconds
        self.begin(now)

    def begin(self, now: float, answer: bool = True) -> None:
        """Begin to wait: the member has no partitions.

        Args:
            answer: Whether the brokers answer; False if they may be away.
        """
        self._since: float | None = now
        self._wait, self._away = self._seconds, not answer

    def end(self) -> None:
        """Stop waiting: the member has partitions."""
        self._since = None

    def is_due(self, now: float) -> bool:
        """Return whether to ask the brokers now; report `note_unanswered` or `note_answered`."""
        wait = min(ASK_AGAIN_SECONDS, self._wait) if self._away else self._wait
        return self._since is not None and now - self._since >= wait

    def note_unanswered(self, now: float) -> None:
        """Note that the brokers do not answer."""
        self._since, self._away = now, True

    def note_answered(self, now: float) -> bool:
        """Note that the brokers answer, and return whether the member is stuck."""
        stuck, self._since, self._away = not self._away, now, False
        if stuck:
            self._wait *= 2
        return stuck


Headers = tuple[tuple[str, bytes | None], ...]

# Calls raw.headers() with the check of its result that an optimized direct call leaves out.
_call_headers = methodcaller("headers")
# The name that stands for headers which the client cannot decode.
NOT_READABLE = "(not readable)"


def read_headers(raw: ck.Message) -> Headers:
    """Return pairs of name and value; one NOT_READABLE pair if a name is not UTF-8."""
    try:
        return tuple(_call_headers(raw) or ())
    except (SystemError, UnicodeDecodeError):
        return ((NOT_READABLE, None),)
