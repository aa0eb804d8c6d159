"""What the present request reads: noted where it is read, for the access journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple


class Unmasked(NamedTuple):
    """A masked value that the answer shows: its RFC 6901 pointer, and the moment of the version,
    which tells two versions of one number apart."""

    path: str
    moment: datetime


@dataclass(slots=True)
class Look:
    """applications: the ids of the applications of which versions were read, in that order.
    unmasked: the masked value that the answer shows. reason: why, in the person's words.
    refused: what did not let the reader see these applications; empty where nothing did. hidden:
    the ids of applications that a list leaves out because the reader may not see them."""

    applications: dict[str, None] = field(default_factory=dict)
    unmasked: Unmasked | None = None
    reason: str = ""
    refused: str = ""
    hidden: tuple[str, ...] = ()


_present: ContextVar[Look | None] = ContextVar("look", default=None)


@contextmanager
def noted() -> Iterator[Look]:
    """Collect what is read until the end of the block. Outside of one, nothing is collected."""
    look = Look()
    token = _present.set(look)
    try:
        yield look
    finally:
        _present.reset(token)


def read(applications: Iterable[str]) -> None:
    """Versions of these applications, or of their children, were read."""
    look = _present.get()
    if look is not None:
        look.applications.update(dict.fromkeys(applications))


def in_request() -> bool:
    """Whether a request is being answered; in a command there is none."""
    return _present.get() is not None


def refused(why: str) -> None:
    """The reader may not see what they asked for. why: a word for the journal."""
    look = _present.get()
    if look is not None:
        look.refused = why


def hidden(applications: Iterable[str]) -> None:
    """A list leaves these out."""
    look = _present.get()
    if look is not None:
        look.hidden = tuple(dict.fromkeys((*look.hidden, *applications)))


def unmasked(path: str, moment: datetime, reason: str) -> None:
    """The answer shows the masked value at this path of the version of this moment, for this
    reason."""
    look = _present.get()
    if look is not None:
        look.unmasked = Unmasked(path, moment)
        look.reason = reason
