"""Starts the servers and processes of the demo, watches them, and stops them at the end."""

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

# The file that runs the command `annals`.
ANNALS_COMMAND = str(Path(__file__).resolve().parents[1] / "__main__.py")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
POLL_S = 0.1
PR_SET_PDEATHSIG = 1  # of Linux
_PRCTL = getattr(ctypes.CDLL(None), "prctl", None)


class StopRequestedError(Exception):
    """Raised after Ctrl-C or SIGTERM, or when the terminal was closed."""


class DemoError(RuntimeError):
    """Raised when the demo cannot continue. The message has the reason and the end of a log."""


def _end_with_parent() -> None:
    """On Linux, end this process when its parent ends, even if SIGKILL ends the parent."""
    if _PRCTL is not None:
        _PRCTL(PR_SET_PDEATHSIG, signal.SIGTERM)


class DemoProcess:
    """A process in a session of its own, which Ctrl-C in the terminal does not reach."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        log: Path,
        environment: Mapping[str, str],
        ends: bool,
    ) -> None:
        """Start the process.

        Args:
            name: The name of the process in messages.
            arguments: The arguments of the Python interpreter.
            log: The file for the output of the process. It is overwritten.
            environment: All environment variables of the process.
            ends: Whether the process ends by itself.
        """
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
        """The exit code, or None while the process runs."""
        return self.process.poll()

    def read_answer(self) -> Any:
        """Return the JSON value in the last line of the output of the process, which has ended."""
        return json.loads(process.read_tail(self.log, lines=1))

    def stop(self, timeout: float = 10) -> None:
        """Ask the process to end. After `timeout` seconds, kill it and the processes it started."""
        if self.returncode is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # also the child processes
        self.process.wait()


class DemoSupervisor(ExitStack):
    """The servers and processes of a demo: a `with` block stops them at its end, newest first.

    Ctrl-C and other signals take effect at the next `check_processes`. Servers that are already
    running are used, and are stopped at the end too.
    """

    def __init__(self, home: Path) -> None:
        super().__init__()
        self.home = home
        self.logs = home / "logs"
        self.children: list[DemoProcess] = []
        self.stop_signal: int | None = None
        self.postgres = embedded.get_database_server(home)

    def __enter__(self) -> Self:
        for number in SIGNALS:
            signal.signal(number, self._note_signal)
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

    def _note_signal(self, number: int, _frame: object) -> None:
        self.stop_signal = number

    def start_servers(self) -> None:
        """Start PostgreSQL and the broker, and set KAFKA_BOOTSTRAP_SERVERS in os.environ.

        DATABASE_URL is not set there: each process gets a value with a different database login.
        """
        os.environ["ANNALS_HOME"] = str(self.home)
        print_step("Annals", f"in {self.home}")
        postgres, broker = self.postgres, embedded.get_broker_server(self.home)
        for server in (postgres, broker):
            self.callback(server.stop)
            self.check_processes()
            server.start()
        self.check_processes()
        os.environ["KAFKA_BOOTSTRAP_SERVERS"] = broker.get_bootstrap_servers()
        # At the embedded broker, a new group member waits for half of this time.
        os.environ.setdefault("ANNALS_KAFKA_SESSION_TIMEOUT_MS", "6000")
        print_step(
            "Servers",
            f"PostgreSQL on port {postgres.get_port()}, broker on port {broker.get_port()}",
        )

    def make_tables(self) -> DemoProcess:
        """Start the process that creates tables, logins, people and marks of sensitive fields."""
        return self.start_process("tables", "-m", "annals.demo.tables", str(self.home), ends=True)

    def start_process(
        self,
        name: str,
        *arguments: str,
        login: str = logins.OWNER,
        environment: Mapping[str, str] | None = None,
        ends: bool = False,
    ) -> DemoProcess:
        """Start a Python process. If it ends unexpectedly, the demo ends, too.

        Args:
            name: The name of the process in messages. The file of its log is NAME.log.
            arguments: The arguments of the Python interpreter.
            login: The login of the process in PostgreSQL.
            environment: Environment variables to add or replace.
            ends: Whether the process ends by itself, with the exit code 0.
        """
        variables = {**os.environ, "DATABASE_URL": self.postgres.build_url(login=login)}
        variables |= environment or {}
        child = DemoProcess(name, arguments, self.logs / f"{name}.log", variables, ends)
        self.children.append(child)
        self.callback(child.stop)
        return child

    def run_process(self, name: str, *arguments: str, **options: Any) -> DemoProcess:
        """Run a Python process to its end, with the options of start_process.

        Raises:
            DemoError: The process did not exit with 0.
        """
        return self.wait_for_end(self.start_process(name, *arguments, ends=True, **options))

    def wait_for_end(self, child: DemoProcess) -> DemoProcess:
        """Wait for the end of a process that ends by itself.

        Raises:
            DemoError: The process did not exit with 0.
        """
        self.wait_until(lambda: child.returncode is not None)
        self.children.remove(child)
        if child.returncode:
            raise _make_ended_error(child)
        return child

    def check_processes(self) -> None:
        """Check that the demo may go on.

        Raises:
            StopRequestedError: A signal arrived.
            DemoError: A process failed, or ended although it should run until the end of the demo.
        """
        if self.stop_signal is not None:
            raise StopRequestedError
        for child in self.children:
            code = child.returncode
            if code is not None and not (child.ends and code == 0):
                raise _make_ended_error(child)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds.

        Raises:
            StopRequestedError: The demo was asked to stop meanwhile.
            DemoError: A process of the demo failed meanwhile, or ended too early.
        """
        while True:
            self.check_processes()
            if condition():
                return
            time.sleep(POLL_S)

    def start_web(self, port: int) -> DemoProcess:
        """Start the web server of Annals, and return when it is ready."""
        command = ("--config", "python:annals.server", "annals.wsgi")
        return self.start_gunicorn("web", port, "/readyz", *command, login=logins.WEB)

    def start_gunicorn(
        self, name: str, port: int, ready: str, *arguments: str, **options: Any
    ) -> DemoProcess:
        """Start gunicorn, and return when it answers at the path `ready`."""
        command = ("-m", "gunicorn", f"--bind={process.HOST}:{port}", *arguments)
        child = self.start_process(name, *command, **options)
        self.wait_until(lambda: is_answering(f"http://{process.HOST}:{port}{ready}"))
        return child


def print_step(label: str, text: str) -> None:
    """Print one line of progress immediately."""
    print(f"{label:<10}{text}", flush=True)


def is_answering(url: str) -> bool:
    """Return whether a GET of the URL is answered with 200."""
    try:
        return requests.get(url, timeout=5).status_code == 200
    except requests.RequestException:
        return False


def _make_ended_error(child: DemoProcess) -> DemoError:
    output = process.read_tail(child.log)
    return DemoError(
        f"{child.name} ended with {child.returncode}:\n{output}\n(whole log: {child.log})"
    )
