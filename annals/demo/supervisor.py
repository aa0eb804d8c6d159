"""Starts the demo's servers and parts, watches them, and ends them whatever happens."""

import fcntl
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from annals import embedded
from annals.demo.parts import Part
from annals.embedded import process

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TURN_S = 0.1


class StopAskedError(Exception):
    """Ctrl-C, SIGTERM, or the terminal was closed."""


class DemoError(RuntimeError):
    """The demo cannot go on; the text says why, and ends with what the part in question said."""


class Supervisor:
    """A context: inside it things are started, at its end all of them are gone, newest first.

    A signal takes effect at the next `checkpoint`, never between the start of a process and the
    moment we know of it. What was running under this ANNALS_HOME before is taken over and ended
    with the rest.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.logs = home / "logs"
        self.parts: list[Part] = []
        self.asked: int | None = None
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        for each in SIGNALS:
            signal.signal(each, self._ask)
        self.logs.mkdir(parents=True, exist_ok=True)
        lock = self._undo.enter_context((self.home / "demo.lock").open("w"))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DemoError(
                f"A demo already runs in {self.home}. End it, or set ANNALS_HOME to another place."
            ) from None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._undo.close()

    def _ask(self, number: int, _frame: object) -> None:
        self.asked = number

    def servers(self) -> None:
        """Start PostgreSQL and the broker; from here on DATABASE_URL and KAFKA_BOOTSTRAP_SERVERS
        are theirs, for this process and for all parts."""
        postgres = embedded.database_server(self.home)
        broker = embedded.broker_server(self.home)
        self._undo.callback(postgres.stop)
        postgres.start()
        self.checkpoint()
        self._undo.callback(broker.stop)
        broker.start()
        self.checkpoint()
        os.environ["DATABASE_URL"] = postgres.url()
        os.environ["KAFKA_BOOTSTRAP_SERVERS"] = broker.bootstrap_servers()
        say("Servers", f"PostgreSQL on port {postgres.port()}, broker on port {broker.port()}")

    def at_end(self, callback: Callable[[], Any]) -> None:
        """Have `callback` called before everything that was started earlier is ended."""
        self._undo.callback(callback)

    def start(self, name: str, *arguments: str) -> Part:
        """Start a Python process whose end, unless by `stop`, is the end of the demo."""
        part = Part(name, arguments, self.logs / f"{name}.log")
        self.parts.append(part)
        self._undo.callback(part.stop)
        return part

    def run(self, name: str, *arguments: str) -> Part:
        """Start a Python process and wait for its end. Raises DemoError unless it exits with 0."""
        part = self.start(name, *arguments)
        self.wait(lambda: part.returncode is not None, but=part)
        self.parts.remove(part)
        if part.returncode:
            raise DemoError(_ended(part))
        return part

    def stop(self, part: Part) -> None:
        """End a part in the middle of the demo. Raises DemoError unless it exits with 0."""
        self.parts.remove(part)
        part.stop()
        if part.returncode:
            raise DemoError(_ended(part))

    def checkpoint(self, but: Part | None = None) -> None:
        """Raises StopAskedError after a signal, DemoError when a part but this one has ended."""
        if self.asked is not None:
            raise StopAskedError
        for part in self.parts:
            if part is not but and part.returncode is not None:
                raise DemoError(_ended(part))

    def wait(self, condition: Callable[[], bool], but: Part | None = None) -> None:
        """Return once the condition holds; raises what `checkpoint` raises."""
        while True:
            self.checkpoint(but)
            if condition():
                return
            time.sleep(TURN_S)

    def web(self, port: int) -> Part:
        """Start the web server on the loopback address; returns once it serves."""
        bind = f"{process.HOST}:{port}"
        command = ("--config", "python:annals.server", "--bind", bind, "annals.wsgi")
        part = self.start("web", "-m", "gunicorn", *command)
        self.wait(lambda: answers(f"http://{bind}/readyz"))
        return part


def say(what: str, text: str) -> None:
    """A line on the terminal, at once."""
    print(f"{what:<10}{text}", flush=True)


def answers(url: str) -> bool:
    """Whether a GET gives 200."""
    try:
        with urllib.request.urlopen(url, timeout=5) as response:  # noqa: S310 (our own address)
            return bool(response.status == 200)
    except (OSError, urllib.error.HTTPError):
        return False


def _ended(part: Part) -> str:
    return f"{part.name} ended with {part.returncode}:\n{part.said()}\n(all of it: {part.log})"
