"""Faults between any two SQL statements, or between two files of the archive.

A thread of the test simulates one process. A trap belongs to one thread and has a point: an SQL
statement, or a file of the archive. When the thread comes to the point, the process is killed, the
connection breaks, or a second process does an act. A killed process sends nothing more to
PostgreSQL, but its `finally` blocks run. tests/system kills real processes.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any

import psycopg
from psycopg import sql

from history.retention.archive.store import ArchiveStore

_this_thread = threading.local()
_UNNAMED = {"_enter_gen": "BEGIN", "_exit_gen": "END"}


class SimulatedKill(BaseException):
    """Raised where the simulated process is killed."""


@dataclass(frozen=True)
class Point:
    """A point at which a fault can happen: before or after an SQL statement or an archive file."""

    word: str = ""  # a part of the statement, or of the file's name
    number: int = 0  # how many earlier statements and files contain this word
    after: bool = False  # whether the fault happens after the statement or file, not before


@dataclass
class Trap:
    """A fault that happens once to one thread, at a given SQL statement or archive file."""

    point: Point
    kill: bool = False  # whether the process is killed; otherwise its connection breaks once
    act: Callable[[], None] | None = None  # called at the point, instead of a kill or a break
    # Sessions whose connection was closed without telling PostgreSQL.
    pids: list[int] = field(default_factory=list)
    sprung: bool = False
    dead: bool = False  # whether the process was killed
    _met: int = 0

    def is_point(self, label: str) -> bool:
        """Return whether the fault happens at the statement or file that `label` describes."""
        if self.sprung or self.point.word not in label:
            return False
        self._met += 1
        return self._met > self.point.number

    def spring(self, connection: psycopg.Connection[Any] | None, label: str) -> None:
        self.sprung = True
        if self.act is not None:
            self.act()
            return
        if connection is not None:
            self.pids.append(connection.pgconn.backend_pid)
            connection.pgconn.finish()
        if self.kill or connection is None:
            self.dead = True
            raise SimulatedKill(label)
        raise psycopg.OperationalError(f"connection lost at {label}")


@contextmanager
def set_trap(trap: Trap | None) -> Iterator[None]:
    """Let the fault `trap` happen in this thread during the `with` block. None: no fault."""
    _this_thread.trap = trap
    try:
        yield
    finally:
        _this_thread.trap = None


@contextmanager
def install_faults() -> Iterator[None]:
    """Let a fault happen at any statement of psycopg, and at any file written to the archive.

    During the `with` block, methods of psycopg and ArchiveStore are replaced.
    """
    wait, write = psycopg.Connection.wait, ArchiveStore.write

    def wait_at_point(self: Any, gen: Any, *args: Any, **kwargs: Any) -> Any:
        # psycopg sends nothing when it begins a pipeline, so this step is not a point.
        sends = gen.gi_code.co_qualname != "BasePipeline._enter_gen"
        if not sends or getattr(_this_thread, "trap", None) is None:
            return wait(self, gen, *args, **kwargs)
        with _reach_point(self, _get_statement(gen)):
            return wait(self, gen, *args, **kwargs)

    @contextmanager
    def write_at_point(self: ArchiveStore, name: str) -> Iterator[IO[bytes]]:
        with _reach_point(None, f"file {name}"), write(self, name) as sink:
            yield sink

    psycopg.Connection.wait = wait_at_point  # type: ignore[method-assign]
    ArchiveStore.write = write_at_point  # type: ignore[method-assign]
    try:
        yield
    finally:
        psycopg.Connection.wait = wait  # type: ignore[method-assign]
        ArchiveStore.write = write  # type: ignore[method-assign]


@contextmanager
def _reach_point(connection: psycopg.Connection[Any] | None, label: str) -> Iterator[None]:
    trap: Trap | None = getattr(_this_thread, "trap", None)
    if trap is None:
        yield
        return
    if trap.dead:
        raise SimulatedKill(label)
    met = trap.is_point(label)
    if met and not trap.point.after:
        trap.spring(connection, label)
    yield
    if met and trap.point.after:
        trap.spring(connection, label)


def _get_statement(gen: Any) -> str:
    """Return the SQL statement that psycopg is about to send.

    If psycopg does something without an SQL statement, return the name of psycopg's function.

    Args:
        gen: A generator of psycopg that has not started.
    """
    name = gen.gi_code.co_name
    frame_locals = gen.gi_frame.f_locals if gen.gi_frame else {}
    query = frame_locals.get("query", frame_locals.get("statement"))
    if isinstance(query, sql.Composable):
        query = query.as_string(None)
    if isinstance(query, bytes):
        query = query.decode("utf-8", "replace")
    return " ".join(query.split()) if isinstance(query, str) else _UNNAMED.get(name, name)
