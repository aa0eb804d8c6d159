"""What all clients of Kafka share: settings, their log, and the error when no broker answers."""

from __future__ import annotations

import logging
from typing import Any

import confluent_kafka as ck

from ingest.source.throttled_log import ThrottledLog

# librdkafka's own messages: in an outage the same one dozens of times a second.
client_logger = logging.getLogger(__name__)
client_logger.addFilter(ThrottledLog())

Config = dict[str, Any]

# Settings of every client. Those from the environment override them.
COMMON: Config = {
    "client.id": "annals",
    # With the default of 10 seconds a client notices that late that its broker is back.
    "reconnect.backoff.max.ms": 1_000,
}
TIMEOUT_SECONDS = 10.0


class Unreachable(Exception):
    """The brokers did not answer in time. Ask again later. Of an error of librdkafka its text is
    the sentence."""

    def __init__(self, error: ck.KafkaException | str) -> None:
        super().__init__(error if isinstance(error, str) else error.args[0].str())


class WrongSettingError(ValueError):
    """librdkafka does not take its settings. The message names the wrong one."""


def log_error(error: ck.KafkaError) -> None:
    """Log an error of a client as a whole."""
    client_logger.warning("Kafka: %s", error.str())
