"""What all clients of Kafka share: settings, their log, and the error when no broker answers."""

import logging
import re
import time
from collections.abc import Callable, Mapping
from operator import methodcaller
from typing import Any, Final, TypeVar

import confluent_kafka as ck

from history.failure.complaints import Complaint

_PLACE: Final = re.compile(r"^(?:\w+://)?(\S+?)/\S+?: (.*)", re.DOTALL)
_AFTER: Final = re.compile(r" \(after \d+ms in state \w+\)?.*", re.DOTALL)
# No address: the broker that a client asked for is away.
_NOTHING: Final = re.compile(r"\d+/\d+ brokers are down|No brokers configured")

# What librdkafka says, and what it means: the first that is found.
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


def of_connection(text: str) -> str | None:
    """What an error of a connection means. None: nothing that those before did not say."""
    if _NOTHING.fullmatch(text):
        return None
    found = _PLACE.match(text)
    place, said = found.groups() if found else ("the brokers", text)
    said = _AFTER.sub("", said)
    for pattern, sentence in _MEANINGS.items():
        if re.search(pattern, said):
            return sentence.format(place=place, said=said)
    return f"Kafka at {place}: {said}"


EVERY_SECONDS = 10.0
_NUMBERS = re.compile(r"\d+")


class ThrottledLog(logging.Filter):
    """Passes a message once in EVERY_SECONDS; messages that differ only in numbers are the same."""

    def __init__(self) -> None:
        super().__init__()
        self._passed: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        text = _NUMBERS.sub("#", record.getMessage())
        now = time.monotonic()
        if now - self._passed.get(text, -EVERY_SECONDS) < EVERY_SECONDS:
            return False
        if len(self._passed) >= 1_000:
            self._passed.clear()
        self._passed[text] = now
        return True


# librdkafka's own messages: in an outage the same one dozens of times a second.
client_logger = logging.getLogger(__name__)


def _is_new(record: logging.LogRecord) -> bool:
    """librdkafka logs the errors that it also gives to Heard, which says them in words."""
    facility = record.args[0] if isinstance(record.args, tuple) and record.args else ""
    return facility not in ("FAIL", "ERROR") or client_logger.isEnabledFor(logging.DEBUG)


client_logger.addFilter(_is_new)
client_logger.addFilter(ThrottledLog())

Config = dict[str, Any]

# Settings of every client. Those from the environment override them.
COMMON: Config = {
    "client.id": "annals",
    # With the default of 10 seconds a client notices that late that its broker is back.
    "reconnect.backoff.max.ms": 1_000,
}
TIMEOUT_SECONDS = 10.0
# A client connects again at least every second, and says each time that it is refused.
REFUSED_SECONDS: Final = 35.0

PROTOCOL: Final = "ANNALS_KAFKA_SECURITY_PROTOCOL"
GIVEN: Final = "ANNALS_KAFKA_* or ANNALS_LIBRDKAFKA_FILE"


T = TypeVar("T")


class Unreachable(Complaint):
    """The brokers did not answer in time. Ask again later."""

    def __init__(self, error: ck.KafkaException | str) -> None:
        super().__init__(error if isinstance(error, str) else error.args[0].str())


class RefusedError(Complaint):
    """The brokers do not accept the login of this process: asking again does not help."""


class NothingToReadError(Complaint):
    """The brokers have none of the topics, or do not let this login read: a run that has an end
    would wait for nothing."""


class WrongSettingError(Complaint, ValueError):
    """librdkafka does not take its settings. The message names the wrong one."""


class Heard:
    """What a client said last about its connections: why it has none. goes_on: said with it."""

    def __init__(self, goes_on: str = "") -> None:
        self.why = ""
        self.place = "the brokers"
        self._goes_on = goes_on
        self._refused_at = -REFUSED_SECONDS

    def note(self, error: ck.KafkaError) -> None:
        """The error_cb of the client."""
        said = of_connection(error.str())
        level = logging.WARNING
        if error.code() == ck.KafkaError._AUTHENTICATION:
            self._refused_at, level = time.monotonic(), logging.ERROR
        if said is not None:
            self.why = said
            client_logger.log(level, "%s%s", said, self._goes_on)

    @property
    def refused(self) -> bool:
        """Whether a broker has refused the login lately."""
        return time.monotonic() - self._refused_at < REFUSED_SECONDS

    def accepted(self) -> None:
        """A broker has accepted the login."""
        self._refused_at = -REFUSED_SECONDS

    def unreachable(self, client: Any, error: ck.KafkaException) -> Unreachable:
        """The error of a question that nobody answered."""
        client.poll(0)  # it hands out what it has to say
        if error.args[0].code() in (ck.KafkaError._TRANSPORT, ck.KafkaError._TIMED_OUT):
            silent = f"Kafka at {self.place} does not answer. Is {PROTOCOL} the right one"
            return Unreachable(self.why or silent)
        return Unreachable(self.why or error.args[0].str())


def made(kind: Callable[..., T], settings: Mapping[str, Any], heard: Heard | None = None) -> T:
    """A client with these settings. Raises WrongSettingError."""
    notes = heard or Heard()
    notes.place = settings.get("bootstrap.servers", notes.place)
    try:
        return kind({**settings, "error_cb": notes.note}, logger=client_logger)
    except ck.KafkaException as error:
        said = error.args[0].str()
    raise WrongSettingError(
        f"Kafka's client does not take the settings of {GIVEN}: {_plain(said, settings)}"
    )


def _plain(said: str, settings: Mapping[str, Any]) -> str:
    """What librdkafka says of a setting. It does not quote the value of a password."""
    if found := re.search(r"(\S+\.location) failed", said):
        file = settings.get(found[1], "nothing")
        return f"{found[1]} is {file}, which is no file that can be read as what it should be"
    return said.partition("client: ")[2] or said


# While the brokers do not answer, they are asked again after this long.
ASK_AGAIN_SECONDS = 2.0


class Patience:
    """Stuck is a member without partitions although the brokers answered for a whole wait. seconds:
    the first wait; after each time it is twice as long, so that members do not act in turn."""

    def __init__(self, seconds: float, now: float) -> None:
        self._seconds = seconds
        self.begin(now)

    def begin(self, now: float, answer: bool = True) -> None:
        """There are no partitions from now on. answer: False if the brokers may be away."""
        self._since: float | None = now
        self._wait, self._away = self._seconds, not answer

    def end(self) -> None:
        """There are partitions."""
        self._since = None

    def due(self, now: float) -> bool:
        """Whether to ask the brokers: report `unanswered` or `answered` then."""
        wait = min(ASK_AGAIN_SECONDS, self._wait) if self._away else self._wait
        return self._since is not None and now - self._since >= wait

    def unanswered(self, now: float) -> None:
        """The brokers do not answer."""
        self._since, self._away = now, True

    def answered(self, now: float) -> bool:
        """The brokers answer. Returns whether the member is stuck."""
        stuck, self._since, self._away = not self._away, now, False
        if stuck:
            self._wait *= 2
        return stuck


Headers = tuple[tuple[str, bytes | None], ...]

# raw.headers(), with a check of its result, which Python leaves out of an optimized direct call.
_call_headers = methodcaller("headers")
# The name of headers that the client does not give.
NOT_READABLE = "(not readable)"


def headers(raw: ck.Message) -> Headers:
    """Pairs of name and value. If a name is not UTF-8, the client gives none of them."""
    try:
        return tuple(_call_headers(raw) or ())
    except (SystemError, UnicodeDecodeError):
        return ((NOT_READABLE, None),)
