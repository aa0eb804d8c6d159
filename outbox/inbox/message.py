"""A message as a handler gets it, and the names under which the inbox keeps it. Pure."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from hashlib import sha256
from operator import methodcaller
from typing import Any, Final, TypeVar

from confluent_kafka import Message as Raw

from outbox.message import IDEMPOTENCY_KEY

Headers = Sequence[tuple[str, bytes | None]]

# PostgreSQL's indexes hold no longer ones.
_LONGEST = 200


class Reject(Exception):
    """Raised by a handler: no attempt will ever succeed. The message is a dead letter at once."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message of Kafka, byte for byte. sent_at: its timestamp, if any. attempt: from 1."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    sent_at: datetime | None = None
    attempt: int = 1

    def json(self) -> Any:
        """Return the value, read as JSON in UTF-8 (RFC 8259), or None if there is no value.

        Numbers are exact: an integer is an int, and a number with a fraction or an exponent is a
        Decimal; so is an integer of more digits than Python writes as text.

        Raises:
            Reject: the value is not JSON.
        """
        if self.value is None:
            return None
        try:
            return json.loads(
                self.value.decode(),
                parse_float=Decimal,
                parse_int=_integer,
                parse_constant=_refuse_constant,
            )
        except (ValueError, RecursionError) as error:
            raise Reject(f"no JSON: {error}") from error
        except InvalidOperation as error:
            raise Reject("no JSON that can be read: an exponent is too large") from error

    def header(self, name: str) -> bytes | None:
        """Return the value of the newest header of this name."""
        found = [value for each, value in self.headers if each == name]
        return found[-1] if found else None

    @property
    def place(self) -> str:
        """topic/partition/offset."""
        return f"{self.topic}/{self.partition}/{self.offset}"

    @property
    def chain(self) -> str:
        """Topic and key: messages with the same chain are processed in order."""
        return self.place if self.key is None else f"{self.topic} {name_of(self.key)}"

    @property
    def identity(self) -> str:
        """Messages with the same identity are the same one. A blank header identifies nothing."""
        given = self.header(IDEMPOTENCY_KEY)
        if given is None or not given.strip():
            return self.place
        return f"{self.topic} {name_of(given)}"


def _integer(digits: str) -> int | Decimal:
    longest = sys.get_int_max_str_digits()
    return Decimal(digits) if 0 < longest < len(digits) else int(digits)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number of JSON")


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


# Python leaves this check out of an optimized direct call; the error would appear anywhere later.
_call: Final = methodcaller("headers")
# The name of headers that the client cannot read.
NOT_READABLE: Final = "(not readable)"


def headers(raw: Raw) -> Headers:
    """Pairs of name and value. If a name is not UTF-8, the client gives none of them."""
    try:
        return tuple((name, as_bytes(value)) for name, value in _call(raw) or ())
    except (SystemError, UnicodeDecodeError):
        return ((NOT_READABLE, None),)


def as_bytes(given: bytes | str | None) -> bytes | None:
    return given.encode() if isinstance(given, str) else given


Function = Callable[[Message], object]
Key = Callable[[Message], str]
F = TypeVar("F", bound=Function)


@dataclass(frozen=True, slots=True)
class Handler:
    """A function and what it reacts to. name: under which its messages are kept. key: the identity
    of a message. attempts, seconds: None: as settings.INBOX says. stop_key: later messages of a
    key wait for a dead letter."""

    name: str
    topics: frozenset[str]
    function: Function
    key: Key | None = None
    attempts: int | None = None
    seconds: float | None = None
    stop_key: bool = True


_handlers: dict[str, Handler] = {}


def handler(
    *topics: str,
    name: str | None = None,
    key: Key | None = None,
    attempts: int | None = None,
    seconds: float | None = None,
    stop_key: bool = True,
) -> Callable[[F], F]:
    """Have the function process each message of the topics, in a transaction, once in effect.
    Raises ValueError.

    name: by default module and function; another name has seen no message. key: the identity of a
    message without the header idempotency-key. attempts: before it becomes a dead letter. seconds:
    of an attempt. stop_key: whether later messages of its key wait for a dead letter.
    """
    if not topics or not all(isinstance(each, str) for each in topics):
        raise ValueError("inbox.handler needs the names of topics: @inbox.handler('shop.order')")

    def register(function: F) -> F:
        called = name or f"{function.__module__}.{function.__qualname__}"
        known = _handlers.get(called)
        if known is not None and _origin(known.function) != _origin(function):
            raise ValueError(f"inbox.handler: two handlers have the name {called!r}")
        _handlers[called] = Handler(
            called, frozenset(topics), function, key, attempts, seconds, stop_key
        )
        return function

    return register


def handlers() -> dict[str, Handler]:
    """The handlers by name."""
    return dict(_handlers)


def _origin(function: Function) -> tuple[str, str]:
    return function.__module__, function.__qualname__
