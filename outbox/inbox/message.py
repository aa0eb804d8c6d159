"""The message that a handler gets, and the decorator that registers handlers."""

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

from outbox.recording.message import IDEMPOTENCY_KEY

Headers = Sequence[tuple[str, bytes | None]]

# Longer names may not fit into PostgreSQL's indexes.
_LONGEST_NAME_BYTES = 200


class Reject(Exception):
    """Raised by a handler if no attempt can succeed.

    The message becomes a dead letter at once.
    """


@dataclass(frozen=True, slots=True)
class Message:
    """A Kafka message, byte for byte.

    Attributes:
        sent_at: The timestamp of the message; None if it has none.
        attempt: The number of this attempt to process the message, from 1.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    sent_at: datetime | None = None
    attempt: int = 1

    def json(self) -> Any:
        """Parse the value as JSON in UTF-8 (RFC 8259). Returns None if there is no value.

        Numbers are exact. An integer becomes an int, or a Decimal if it has more digits than
        Python converts. A number with a fraction or an exponent becomes a Decimal.

        Raises:
            Reject: The value is not JSON.
        """
        if self.value is None:
            return None
        try:
            return json.loads(
                self.value.decode(),
                parse_float=Decimal,
                parse_int=_parse_integer,
                parse_constant=_refuse_constant,
            )
        except (ValueError, RecursionError) as error:
            raise Reject(f"the value is not JSON: {error}") from error
        except InvalidOperation as error:
            raise Reject("the value cannot be parsed as JSON: an exponent is too large") from error

    def header(self, name: str) -> bytes | None:
        """Return the value of the last header with this name, or None."""
        values = [value for header_name, value in self.headers if header_name == name]
        return values[-1] if values else None

    @property
    def place(self) -> str:
        """The text `topic/partition/offset`."""
        return f"{self.topic}/{self.partition}/{self.offset}"

    @property
    def chain(self) -> str:
        """The topic and the Kafka key. Messages with equal topic and key are processed in order.

        For a message without a key, this is `topic/partition/offset`.
        """
        return self.place if self.key is None else f"{self.topic} {format_name(self.key)}"

    @property
    def identity(self) -> str:
        """A text that identifies the message. A later message with the same identity is skipped.

        The identity is made of the topic and the header idempotency-key. If this header is missing
        or blank, the identity is `topic/partition/offset`.
        """
        idempotency_key = self.header(IDEMPOTENCY_KEY)
        if idempotency_key is None or not idempotency_key.strip():
            return self.place
        return f"{self.topic} {format_name(idempotency_key)}"


def _parse_integer(digits: str) -> int | Decimal:
    longest = sys.get_int_max_str_digits()
    return Decimal(digits) if 0 < longest < len(digits) else int(digits)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def format_name(name: bytes | str) -> str:
    """Return a message key or idempotency key as a text that PostgreSQL can index.

    Different keys give different texts.
    """
    raw = name.encode("utf-8", "surrogatepass") if isinstance(name, str) else name
    if len(raw) > _LONGEST_NAME_BYTES:
        return f"sha256:{sha256(raw).hexdigest()}"
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return f"hex:{raw.hex()}"
    # A text that begins like an encoded name is encoded too, so that no two names give one text.
    plain = "\0" not in text and not text.startswith(("hex:", "sha256:"))
    return text if plain else f"hex:{raw.hex()}"


# Calls headers() of a message. For a direct call Python skips a check of the result. An error that
# the client has set would then appear in a later statement.
_call_headers: Final = methodcaller("headers")
# Stands for headers that the Kafka client library cannot read.
NOT_READABLE: Final = "(not readable)"


def read_headers(raw: Raw) -> Headers:
    """Return the headers as pairs of a name and a value.

    If the name of a header is not UTF-8, the Kafka client library cannot read any header of the
    message. The result is then the single pair (NOT_READABLE, None).
    """
    try:
        return tuple((name, as_bytes(value)) for name, value in _call_headers(raw) or ())
    except (SystemError, UnicodeDecodeError):
        return ((NOT_READABLE, None),)


def as_bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


HandlerFunction = Callable[[Message], object]
FindIdentity = Callable[[Message], str]
FunctionType = TypeVar("FunctionType", bound=HandlerFunction)


@dataclass(frozen=True, slots=True)
class MessageHandler:
    """A function that processes the messages of some topics.

    Attributes:
        name: The name under which messages for this handler are stored.
        topics: The topics of the messages.
        function: Called with each message.
        key: A function that returns a text that identifies a message. None: `Message.identity` is
            used.
        attempts: After how many failed attempts a message becomes a dead letter. None: as in
            settings.INBOX.
        seconds: How many seconds an attempt may take. None: as in settings.INBOX.
        stop_key: Whether a dead letter stops later messages with the same topic and Kafka key.
    """

    name: str
    topics: frozenset[str]
    function: HandlerFunction
    key: FindIdentity | None = None
    attempts: int | None = None
    seconds: float | None = None
    stop_key: bool = True


_handlers: dict[str, MessageHandler] = {}


def handler(
    *topics: str,
    name: str | None = None,
    key: FindIdentity | None = None,
    attempts: int | None = None,
    seconds: float | None = None,
    stop_key: bool = True,
) -> Callable[[FunctionType], FunctionType]:
    """Decorate a function so that it processes the messages of the topics.

    The function runs in a transaction of the database. A message can be tried several times, but
    only one transaction is committed, so its changes are made exactly once.

    Args:
        topics: The names of the topics.
        name: The name of the handler; by default, its module and function. A handler with a new
            name does not know which messages were processed before.
        key: A function that returns a text that identifies a message. By default, the text is the
            header idempotency-key, or else `topic/partition/offset`.
        attempts: After how many failed attempts a message becomes a dead letter.
        seconds: How many seconds an attempt may take.
        stop_key: Whether a dead letter stops later messages with the same topic and Kafka key.

    Raises:
        ValueError: There is no topic, or a different handler has the name.
    """
    if not topics or not all(isinstance(topic, str) for topic in topics):
        raise ValueError("inbox.handler needs the names of topics: @inbox.handler('shop.order')")

    def register_function(function: FunctionType) -> FunctionType:
        handler_name = name or f"{function.__module__}.{function.__qualname__}"
        existing = _handlers.get(handler_name)
        if existing is not None and _get_origin(existing.function) != _get_origin(function):
            raise ValueError(f"inbox.handler: two handlers have the name {handler_name!r}")
        _handlers[handler_name] = MessageHandler(
            handler_name, frozenset(topics), function, key, attempts, seconds, stop_key
        )
        return function

    return register_function


def list_handlers() -> dict[str, MessageHandler]:
    """Return the handlers by name."""
    return dict(_handlers)


def _get_origin(function: HandlerFunction) -> tuple[str, str]:
    return function.__module__, function.__qualname__
