"""What librdkafka says of a connection that fails, as a sentence for people. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_PLACE: Final = re.compile(r"^(?:\w+://)?(\S+?)/\S+?: (.*)", re.DOTALL)
_AFTER: Final = re.compile(r" \(after \d+ms in state \w+\)?.*", re.DOTALL)
# No address: the broker that a client asked for is away.
_NOTHING: Final = re.compile(r"\d+/\d+ brokers are down|No brokers configured")

_REFUSED: Final[Mapping[str, str]] = {
    r"Unsupported SASL mechanism|handshake failed": "Kafka at {place} does not offer the "
    "mechanism of ANNALS_KAFKA_SASL_MECHANISM, or asks for no password at all: correct it and "
    "ANNALS_KAFKA_SECURITY_PROTOCOL",
    r"authentication|Authentication|credentials": "Kafka at {place} refuses the login: correct "
    "ANNALS_KAFKA_SASL_USERNAME and ANNALS_KAFKA_SASL_PASSWORD, or ANNALS_LIBRDKAFKA_FILE",
}
_AWAY: Final[Mapping[str, str]] = {
    r"Connection refused": "no broker listens at {place}",
    r"Failed to resolve": "no server has the name of the host in {place}",
    r"timed out|timeout": "Kafka at {place} does not answer",
    r"security.protocol|might require SASL|ApiVersion|Receive failed|Disconnected": "Kafka at "
    "{place} closes the connection: is ANNALS_KAFKA_SECURITY_PROTOCOL the right one",
    r"SSL handshake|ssl|certificate": "Kafka at {place} and this process agree on no TLS: correct "
    "ANNALS_KAFKA_SECURITY_PROTOCOL and ANNALS_KAFKA_SSL_CA_LOCATION ({said})",
}


def of_connection(text: str) -> str | None:
    """What an error of a connection means. None: nothing that the errors before it have not
    said."""
    if _NOTHING.fullmatch(text):
        return None
    return _in(text, {**_REFUSED, **_AWAY})


def _in(text: str, table: Mapping[str, str]) -> str:
    found = _PLACE.match(text)
    place, said = found.groups() if found else ("the brokers", text)
    said = _AFTER.sub("", said)
    for pattern, sentence in table.items():
        if re.search(pattern, said):
            return sentence.format(place=place, said=said)
    return f"Kafka at {place}: {said}"
