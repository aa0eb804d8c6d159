"""Starts the servers and processes of the demo, watches them, and always stops them."""

import contextlib
import ctypes
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import requests

from annals import embedded
from annals.embedded import logins, process

# The command `annals`.
MANAGE = str(Path(__file__).resolve().parents[1] / "__main__.py")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
POLL_S = 0.1
PR_SET_PDEATHSIG = 1  # of Linux
_PRCTL = getattr(ctypes.CDLL(None), "prctl", None)


class StopAskedError(Exception):
    """Ctrl-C or SIGTERM came, or the terminal was closed."""


class DemoError(RuntimeError):
    """The demo cannot continue. The text says why, with the end of a log."""


def _end_with_parent() -> None:
    """Let this process end when the one that started it ends, even by SIGKILL; on Linux."""
    if _PRCTL is not None:
        _PRCTL(PR_SET_PDEATHSIG, signal.SIGTERM)


class ChildProcess:
    """One process in a session of its own: Ctrl-C reaches only the supervisor."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        log: Path,
        environment: Mapping[str, str],
        ends: bool,
    ) -> None:
        """arguments: those of the Python interpreter. log: overwritten at the start. ends: whether
        it does not run until it is stopped."""
        self.name = name
        self.ends = ends
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env=environment,
                preexec_fn=_end_with_parent,  # noqa: PLW1509 - there is no other thread
            )

    @property
    def returncode(self) -> int | None:
        """None while it runs."""
        return self.process.poll()

    def answer(self) -> Any:
        """The last line of its output, which is JSON. Call it after the end."""
        return json.loads(process.tail(self.log, lines=1))

    def stop(self, patience: float = 10) -> None:
        """Ask it to end; after `patience` seconds kill it and all processes that it started."""
        if self.returncode is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(patience)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # children that it may have left
        self.process.wait()


class Supervisor(ExitStack):
    """A context manager: what is started inside it is stopped at its end, newest first. A signal
    takes effect at the next `checkpoint`. Servers that ran before are used, and stopped too."""

    def __init__(self, home: Path) -> None:
        super().__init__()
        self.home = home
        self.logs = home / "logs"
        self.children: list[ChildProcess] = []
        self.asked: int | None = None
        self.postgres = embedded.database_server(home)

    def __enter__(self) -> Self:
        for each in SIGNALS:
            signal.signal(each, self._ask)
        self.logs.mkdir(parents=True, exist_ok=True)
        lock = self.enter_context((self.home / "demo.lock").open("w"))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DemoError(
                f"A demo is already running in {self.home}. Stop it, or set ANNALS_HOME to another "
                "directory."
            ) from None
        return self

    def _ask(self, number: int, _frame: object) -> None:
        self.asked = number

    def servers(self) -> None:
        """Start PostgreSQL and the broker, and set KAFKA_BOOTSTRAP_SERVERS for this process and its
        children. DATABASE_URL is each child's own."""
        os.environ["ANNALS_HOME"] = str(self.home)
        print_step("Annals", f"in {self.home}")
        postgres, broker = self.postgres, embedded.broker_server(self.home)
        for server in (postgres, broker):
            self.callback(server.stop)
            self.checkpoint()
            server.start()
        self.checkpoint()
        os.environ["KAFKA_BOOTSTRAP_SERVERS"] = broker.bootstrap_servers()
        # The embedded broker lets a new member wait for half of this time.
        os.environ.setdefault("ANNALS_KAFKA_SESSION_TIMEOUT_MS", "6000")
        print_step(
            "Servers", f"PostgreSQL on port {postgres.port()}, broker on port {broker.port()}"
        )

    def make_tables(self) -> ChildProcess:
        """Start what makes them, with the people, the logins and the marks of sensitive fields."""
        return self.start("tables", "-m", "annals.demo.tables", str(self.home), ends=True)

    def start(
        self,
        name: str,
        *arguments: str,
        login: str = logins.OWNER,
        environment: Mapping[str, str] | None = None,
        ends: bool = False,
    ) -> ChildProcess:
        """Start a Python process that works as this login in PostgreSQL. environment: additional
        variables. If it ends, the demo ends too; ends: it has to end with 0, see `finish`."""
        variables = {**os.environ, "DATABASE_URL": self.postgres.url(login=login)}
        variables |= environment or {}
        child = ChildProcess(name, arguments, self.logs / f"{name}.log", variables, ends)
        self.children.append(child)
        self.callback(child.stop)
        return child

    def run(self, name: str, *arguments: str, **options: Any) -> ChildProcess:
        """Run a Python process to its end. options: of `start`. Raises DemoError unless it exits
        with 0."""
        return self.finish(self.start(name, *arguments, ends=True, **options))

    def finish(self, child: ChildProcess) -> ChildProcess:
        """Wait for the end of a process that ends. Raises DemoError unless it exits with 0."""
        self.wait(lambda: child.returncode is not None)
        self.children.remove(child)
        if child.returncode:
            raise _ended(child)
        return child

    def checkpoint(self) -> None:
        """Raises StopAskedError after a signal, DemoError after an end."""
        if self.asked is not None:
            raise StopAskedError
        for child in self.children:
            code = child.returncode
            if code is not None and not (child.ends and code == 0):
                raise _ended(child)

    def wait(self, condition: Callable[[], bool]) -> None:
        """Return once the condition holds; raises what `checkpoint` raises."""
        while True:
            self.checkpoint()
            if condition():
                return
            time.sleep(POLL_S)

    def web(self, port: int) -> ChildProcess:
        """Start the web server; returns when it is ready."""
        command = ("--config", "python:annals.server", "annals.wsgi")
        return self.gunicorn("web", port, "/readyz", *command, login=logins.WEB)

    def gunicorn(
        self, name: str, port: int, ready: str, *arguments: str, **options: Any
    ) -> ChildProcess:
        """Start gunicorn; returns when it answers at the path `ready`. options: of `start`."""
        command = ("-m", "gunicorn", f"--bind={process.HOST}:{port}", *arguments)
        child = self.start(name, *command, **options)
        self.wait(lambda: answers(f"http://{process.HOST}:{port}{ready}"))
        return child


def print_step(what: str, text: str) -> None:
    """Print one line of progress immediately."""
    print(f"{what:<10}{text}", flush=True)


def answers(url: str) -> bool:
    """Whether a GET gives 200."""
    try:
        return requests.get(url, timeout=5).status_code == 200
    except requests.RequestException:
        return False


def _ended(child: ChildProcess) -> DemoError:
    output = process.tail(child.log)
    return DemoError(
        f"{child.name} ended with {child.returncode}:\n{output}\n(all of it: {child.log})"
    )
