"""What the present request reads: noted where it is read, for the access journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass(slots=True)
class Look:
    """applications: the ids of the applications of which versions were read, in that order.
    unmasked: the paths whose masked values the answer shows. reason: why, in the person's words.
    refused: what did not let the reader see these applications; empty where nothing did. hidden:
    the ids of applications that a list leaves out because the reader may not see them."""

    applications: dict[str, None] = field(default_factory=dict)
    unmasked: list[str] = field(default_factory=list)
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


def unmasked(path: str, reason: str) -> None:
    """The answer shows the masked value at this path, for this reason."""
    look = _present.get()
    if look is not None:
        look.unmasked.append(path)
        look.reason = reason
