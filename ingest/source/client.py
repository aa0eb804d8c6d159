"""What all clients of Kafka share: settings, their log, and the error when no broker answers."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

import confluent_kafka as ck

from history.failure.complaint import Complaint
from ingest.source import trouble
from ingest.source.throttled_log import ThrottledLog

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


class Served(Protocol):
    """A client of librdkafka. poll() hands out what it has to say."""

    def poll(self, timeout: float, /) -> object: ...


T = TypeVar("T")


class Unreachable(Complaint):
    """The brokers did not answer in time. Ask again later."""

    def __init__(self, error: ck.KafkaException | str) -> None:
        super().__init__(error if isinstance(error, str) else error.args[0].str())


class RefusedError(Complaint):
    """The brokers do not accept the login of this process: asking again does not help."""


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
        said = trouble.of_connection(error.str())
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

    def unreachable(self, client: Served, error: ck.KafkaException) -> Unreachable:
        """The error of a question that nobody answered."""
        client.poll(0)
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
