"""What one call has found already: it is not asked for again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from history.people import Author, unnamed

if TYPE_CHECKING:
    from history.timeline.sources.statements import Key, Place, VersionRow

# Kind and id.
Named: TypeAlias = tuple[str, str]


@dataclass(slots=True)
class Ahead:
    """What a statement brought that later ones would ask for, by kind and id. keys: all of these
    entities; empty where the store has none. children: of an application, by kind and its id. rows:
    as stored, by kind and place."""

    keys: dict[Named, list[Key]] = field(default_factory=dict)
    children: dict[Named, list[str]] = field(default_factory=dict)
    rows: dict[tuple[str, Place], VersionRow] = field(default_factory=dict)


@dataclass(slots=True)
class Memory:
    """homes: the applications of children. moved: by application, those of its children that are
    in others, too, each with these. people: who made the versions that were read, by login and
    client id."""

    homes: dict[Named, set[str]] = field(default_factory=dict)
    moved: dict[str, dict[Named, set[str]]] = field(default_factory=dict)
    people: dict[str, Author] = field(default_factory=dict)
    ahead: Ahead = field(default_factory=Ahead)


_memory: ContextVar[Memory | None] = ContextVar("history.timeline.memory", default=None)


@contextmanager
def remembered() -> Iterator[None]:
    """What is found inside is asked for once. An inner block uses the memory of the outer one."""
    if _memory.get() is not None:
        yield
        return
    token = _memory.set(Memory())
    try:
        yield
    finally:
        _memory.reset(token)


def present() -> Memory | None:
    """None outside of a block."""
    return _memory.get()


def note(login: str | None, name: str | None, kind: Any) -> None:
    """Who this login or client id is; no name: it is not known."""
    known = _memory.get()
    if known is not None and login is not None and login not in known.people:
        known.people[login] = unnamed(login) if name is None else Author(login, name, kind)


def people(logins: Iterable[str]) -> dict[str, Author]:
    """Those of these logins and client ids that were looked up."""
    known = {} if (found := _memory.get()) is None else found.people
    return {login: known[login] for login in logins if login in known}


def ahead() -> Ahead:
    """What is read already; nothing outside of a block."""
    return Ahead() if (found := _memory.get()) is None else found.ahead
