"""A message as a handler gets it, and the names under which the inbox keeps it. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

from outbox.message import IDEMPOTENCY_KEY

Headers = Sequence[tuple[str, bytes | None]]

# PostgreSQL's indexes hold no longer ones.
_LONGEST = 200


class Reject(Exception):
    """Raised by a handler: no attempt will ever succeed. The message is a dead letter at once."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message of Kafka, byte for byte. sent_at: its timestamp, if it has one. attempt: 1 for the
    first one."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    sent_at: datetime | None = None
    attempt: int = 1

    def json(self) -> Any:
        """The value, read as JSON; None if there is no value. Raises Reject if it is no JSON."""
        if self.value is None:
            return None
        try:
            return json.loads(self.value)
        except (ValueError, RecursionError) as error:
            raise Reject(f"no JSON: {error}") from error

    def header(self, name: str) -> bytes | None:
        """The newest header of this name."""
        found = [value for each, value in self.headers if each == name]
        return found[-1] if found else None

    @property
    def place(self) -> str:
        """topic/partition/offset."""
        return f"{self.topic}/{self.partition}/{self.offset}"

    @property
    def chain(self) -> str:
        """Messages with the same chain are processed in order: topic and key. Without a key a
        message is alone."""
        return self.place if self.key is None else f"{self.topic} {name_of(self.key)}"

    @property
    def identity(self) -> str:
        """Messages with the same identity are the same one: topic and idempotency key, or the place
        of a message that has none."""
        given = self.header(IDEMPOTENCY_KEY)
        return self.place if given is None else f"{self.topic} {name_of(given)}"


def name_of(given: bytes | str) -> str:
    """A text that PostgreSQL can index; different for different bytes."""
    raw = given.encode("utf-8", "surrogatepass") if isinstance(given, str) else given
    if len(raw) > _LONGEST:
        return f"sha256:{sha256(raw).hexdigest()}"
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return f"hex:{raw.hex()}"
    # A text that looks like one of the other forms gets one too.
    plain = "\0" not in text and not text.startswith(("hex:", "sha256:"))
    return text if plain else f"hex:{raw.hex()}"
