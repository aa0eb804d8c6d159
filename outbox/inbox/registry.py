"""The handlers of this service: functions that `@inbox.handler` names for topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from outbox.inbox.message import Message

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
