"""Starts the servers and processes of the demo, watches them, and always stops them."""

import fcntl
import os
import shutil
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

from annals import embedded
from annals.demo.child_process import ChildProcess
from annals.demo.port import Port
from annals.embedded import logins, process

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
POLL_S = 0.1
CHECK_S = 1.0
# Two files of PostgreSQL's write-ahead log.
MIN_FREE_BYTES = 32 << 20


class StopAskedError(Exception):
    """Ctrl-C or SIGTERM came, or the terminal was closed."""


class DemoError(RuntimeError):
    """The demo cannot continue. The text says why, with the end of the log of the process that
    failed."""


class Supervisor:
    """A context manager: everything that is started inside it is stopped at its end, newest first.

    A signal takes effect at the next `checkpoint`, so never between the start of a process and its
    registration. Servers of this ANNALS_HOME that ran before are used, and stopped with the rest.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.logs = home / "logs"
        self.children: list[ChildProcess] = []
        self.asked: int | None = None
        self.postgres = embedded.database_server(home)
        self._servers: dict[str, embedded.Postgres | embedded.Broker] = {}
        self._check_due = 0.0
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
                f"A demo is already running in {self.home}. Stop it, or set ANNALS_HOME to another "
                "directory."
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
        """Start PostgreSQL and the broker, and set KAFKA_BOOTSTRAP_SERVERS for this process and its
        children. DATABASE_URL is each child's own."""
        postgres = self.postgres
        broker = embedded.broker_server(self.home)
        for name, server in (("PostgreSQL", postgres), ("The broker", broker)):
            self._undo.callback(server.stop)
            self.checkpoint()
            server.start()
            self._servers[name] = server
        self.checkpoint()
        os.environ["KAFKA_BOOTSTRAP_SERVERS"] = broker.bootstrap_servers()
        print_step(
            "Servers", f"PostgreSQL on port {postgres.port()}, broker on port {broker.port()}"
        )

    def at_end(self, callback: Callable[[], Any]) -> None:
        """Call `callback` at the end, before everything that was started earlier is stopped."""
        self._undo.callback(callback)

    def start(
        self,
        name: str,
        *arguments: str,
        login: str = logins.OWNER,
        pass_fds: Sequence[int] = (),
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> ChildProcess:
        """Start a Python process that works as this login in PostgreSQL. If it ends without `stop`,
        the demo ends too. environment: variables that it has next to those of this process."""
        variables = {**os.environ, "DATABASE_URL": self.postgres.url(login=login), **environment}
        child = ChildProcess(name, arguments, self.logs / f"{name}.log", pass_fds, variables)
        self.children.append(child)
        self._undo.callback(child.stop)
        return child

    def run(
        self,
        name: str,
        *arguments: str,
        login: str = logins.OWNER,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> ChildProcess:
        """Run a Python process to its end. Raises DemoError unless it exits with 0."""
        child = self.start(name, *arguments, login=login, environment=environment)
        self.wait(lambda: child.returncode is not None, but=child)
        self.children.remove(child)
        if child.returncode:
            raise DemoError(_ended(child))
        return child

    def stop(self, child: ChildProcess) -> None:
        """Stop one process during the demo. Raises DemoError unless it exits with 0."""
        self.children.remove(child)
        child.stop()
        if child.returncode:
            raise DemoError(_ended(child))

    def checkpoint(self, but: ChildProcess | None = None) -> None:
        """Raises StopAskedError after a signal, DemoError if a process other than `but` or a server
        has ended, or if the disk is full."""
        if self.asked is not None:
            raise StopAskedError
        for child in self.children:
            if child is not but and child.returncode is not None:
                raise DemoError(_ended(child))
        if time.monotonic() >= self._check_due:
            self._check_due = time.monotonic() + CHECK_S
            self._check_disk()
            for name, server in self._servers.items():
                if server.pid() is None:
                    raise DemoError(
                        f"{name} ended:\n{process.tail(server.log)}\n(all of it: {server.log})"
                    )

    def _check_disk(self) -> None:
        """End before the servers fail: what PostgreSQL still has to write fits."""
        free = shutil.disk_usage(self.home).free
        if free < MIN_FREE_BYTES:
            raise DemoError(
                f"The disk with {self.home} is full: {free >> 20} MB are free, and the demo needs "
                f"{MIN_FREE_BYTES >> 20} MB. Free some space and start it again; stored data is "
                "kept."
            )

    def wait(self, condition: Callable[[], bool], but: ChildProcess | None = None) -> None:
        """Return once the condition holds; raises what `checkpoint` raises."""
        while True:
            self.checkpoint(but)
            if condition():
                return
            time.sleep(POLL_S)

    def web(self, port: Port) -> ChildProcess:
        """Start the web server on a port that is held; returns when it is ready."""
        command = ("--config", "python:annals.server", "annals.wsgi")
        return self.gunicorn("web", port, "/readyz", *command, login=logins.WEB)

    def gunicorn(
        self,
        name: str,
        port: Port,
        ready: str,
        *arguments: str,
        login: str = logins.OWNER,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> ChildProcess:
        """Start gunicorn on a port that is held; returns when it answers at the path `ready`."""
        files = [each.fileno() for each in port.sockets]
        command = ("-m", "gunicorn", *(f"--bind=fd://{file}" for file in files), *arguments)
        child = self.start(name, *command, login=login, pass_fds=files, environment=environment)
        port.close()
        self.wait(lambda: answers(f"http://{process.HOST}:{port.number}{ready}"))
        return child


def print_step(what: str, text: str) -> None:
    """Print one line of progress immediately."""
    print(f"{what:<10}{text}", flush=True)


def answers(url: str) -> bool:
    """Whether a GET gives 200."""
    try:
        with urllib.request.urlopen(url, timeout=5) as response:  # noqa: S310 (our own address)
            return bool(response.status == 200)
    except (OSError, urllib.error.HTTPError):
        return False


def _ended(child: ChildProcess) -> str:
    output = child.output_end()
    return f"{child.name} ended with {child.returncode}:\n{output}\n(all of it: {child.log})"
