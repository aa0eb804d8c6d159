"""A message as a handler gets it, and the names under which the inbox keeps it. Pure."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
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


# Python leaves the check of the result out once it has optimized a direct call, and the client's
# error would appear anywhere later.
_call: Final = methodcaller("headers")
# The name of a header whose name the client does not give.
NOT_READABLE: Final = "(not readable)"


def headers(raw: Raw) -> Headers:
    """Pairs of name and value. A name that is not UTF-8 is NOT_READABLE."""
    try:
        return _pairs(_call(raw) or ())
    except (SystemError, UnicodeDecodeError):
        # The client leaves such a name out of its pair, and fails then. The message keeps the
        # pairs, and the second call returns them.
        try:
            return _pairs(_call(raw))
        except (SystemError, UnicodeDecodeError):
            return ((NOT_READABLE, None),)


def _pairs(given: Any) -> Headers:
    found: list[tuple[str, bytes | None]] = []
    for pair in given:
        # Reading a name that is left out would end the process. This lists only what is there.
        there: list[Any] = gc.get_referents(pair)
        if len(there) < 2:
            found.append((NOT_READABLE, there[0]))
        else:
            found.append((str(pair[0]), _bytes(pair[1])))
    return tuple(found)


def _bytes(given: bytes | str | None) -> bytes | None:
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

    name: by default module and function; a handler with another name has not seen any message.
    key: gives the identity of a message, for topics without the header idempotency-key. attempts:
    before the message becomes a dead letter. seconds: the longest an attempt may take. stop_key:
    whether later messages of its key wait for a dead letter. Raises ValueError.
    """
    if not topics or not all(isinstance(each, str) and each for each in topics):
        raise ValueError("inbox.handler needs the names of topics: @inbox.handler('shop.order')")
    if any(each.startswith("^") for each in topics):
        # Kafka's client would read what matches, and no message would have this topic.
        raise ValueError("inbox.handler needs each topic by its name, not a pattern")
    if attempts is not None and attempts < 1:
        raise ValueError("inbox.handler: attempts must be 1 or more")
    if seconds is not None and seconds <= 0:
        raise ValueError("inbox.handler: seconds must be more than 0")

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


def handlers(topics: Iterable[str] = ()) -> dict[str, Handler]:
    """The handlers by name; if topics are given, those that react to one of them."""
    wanted = frozenset(topics)
    return {name: each for name, each in _handlers.items() if not wanted or wanted & each.topics}


def _origin(function: Function) -> tuple[str, str]:
    return function.__module__, function.__qualname__
