"""A server process that outlives the command that started it.

Its directory has `server.log`, `lock`, and `state.json` with the pid and ports, by which later
commands find the server.
"""

import json
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal

from annals.embedded import process
from annals.embedded.process import EmbeddedError
from history.common import private_files

START_ATTEMPTS = 50

StopMode = Literal["fast", "immediate"]


class ServerProcess(ABC):
    """A server in the directory `home`, with one loopback port for each of its listeners."""

    listeners: Sequence[str]
    # The signals that end the server, the gentlest first.
    signals: ClassVar[Sequence[signal.Signals]] = (signal.SIGTERM, signal.SIGKILL)
    # Texts in the log of a failed start after which another attempt can succeed.
    temporary_errors: ClassVar[Sequence[str]] = ("Address already in use",)

    def __init__(self, home: str | Path) -> None:
        self.home = Path(home).resolve()
        self.log = self.home / "server.log"
        self.state = self.home / "state.json"

    @property
    @abstractmethod
    def marker(self) -> str:
        """A part of the command line by which this server differs from all others."""

    @abstractmethod
    def build_command(self, ports: Mapping[str, int]) -> Sequence[str | Path]:
        """Prepare the server to listen on these ports, and return its command line."""

    def spawn(self, argv: Sequence[str | Path]) -> int:
        """Start the process and return its pid."""
        return process.spawn_server(argv, self.log, self.home, process.make_environment())

    def complete_start(self) -> None:  # noqa: B027 - most servers need no preparation
        """Prepare the server after it accepts connections, for example create a database.

        `start` always calls this, also if the server was already running. By default, there is
        nothing to prepare.
        """

    def start(self, timeout: float = 300) -> bool:
        """Start the server, and return when it accepts connections.

        Several processes may call this at once.

        Returns:
            False if the server was already running.

        Raises:
            EmbeddedError: The server does not start. The message has the end of its log.
        """
        with private_files.hold_file_lock(self.home / "lock"):
            pid = self.find_pid()
            if pid is None:
                self._launch(timeout)
            else:
                self._await_ready(pid, timeout)
            self.complete_start()
            return pid is None

    def stop(self, mode: StopMode = "fast", timeout: float = 60) -> bool:
        """Stop the server. After each `timeout` seconds, send it a harsher signal.

        With the mode `immediate`, the gentlest signal is skipped.

        Returns:
            False if the server was not running.

        Raises:
            EmbeddedError: The server does not end.
        """
        with private_files.hold_file_lock(self.home / "lock"):
            pid = self.find_pid()
            if pid is None:
                return False
            for signal_number in self.signals[mode == "immediate" :]:
                if process.end_process(pid, self.marker, signal_number, timeout):
                    return True
            raise EmbeddedError(f"the server (pid {pid}) in {self.home} does not end")

    def kill(self) -> None:
        """Send SIGKILL to the server, as the operating system does when memory runs out."""
        pid = self.find_pid()
        if pid is not None:
            process.end_process(pid, self.marker, signal.SIGKILL, 10)

    def is_running(self) -> bool:
        """Return whether the server runs and accepts connections."""
        pid = self.find_pid()
        return pid is not None and self.is_accepting(pid)

    def is_accepting(self, pid: int) -> bool:
        """Return whether the server with this pid accepts connections."""
        return process.is_listening(pid, self.get_ports().values())

    def find_pid(self) -> int | None:
        """Return the pid of the running server, whichever process started it, or None."""
        pid: int | None = self._read_state().get("pid")
        return pid if pid is not None and process.is_alive(pid, self.marker) else None

    def get_port(self, listener: str | None = None) -> int:
        """Return the TCP port of a listener; by default, of the first listener.

        The next start uses the same port if it is free.

        Raises:
            EmbeddedError: The server was never started.
        """
        name = listener or self.listeners[0]
        try:
            return self.get_ports()[name]
        except KeyError:
            raise EmbeddedError(f"{name} in {self.home} was never started") from None

    def get_ports(self) -> dict[str, int]:
        """Return the port of each listener at the latest start."""
        return {name: port for name, port in self._read_state().items() if name != "pid"}

    def _read_state(self) -> dict[str, int]:
        try:
            state: dict[str, int] = json.loads(self.state.read_text())
        except FileNotFoundError:
            return {}
        return state

    def _launch(self, timeout: float) -> None:
        """Start the process. Try again if it ends with one of `temporary_errors` in its log."""
        output = ""
        for _ in range(START_ATTEMPTS):
            earlier_ports = self.get_ports()
            free = process.choose_free_ports([earlier_ports.get(name) for name in self.listeners])
            ports = dict(zip(self.listeners, free, strict=True))
            argv = self.build_command(ports)
            offset = self.log.stat().st_size if self.log.exists() else 0
            pid = self.spawn(argv)
            # Written before the server is ready, so that it can be found even if this process dies.
            private_files.write_private_file(self.state, json.dumps({"pid": pid, **ports}))
            if self._await_ready(pid, timeout):
                return
            output = process.read_tail(self.log, offset)
            if not any(text in output for text in self.temporary_errors):
                break
            time.sleep(0.2)
        raise EmbeddedError(f"the server in {self.home} does not start:\n{output}")

    def _await_ready(self, pid: int, timeout: float) -> bool:
        """Wait until the server accepts connections. Returns False if it ended instead."""
        process.wait_until(
            lambda: self.is_running() or not process.is_alive(pid, self.marker), timeout
        )
        if self.is_running():
            return True
        if process.is_alive(pid, self.marker):
            raise EmbeddedError(f"the server in {self.home} is not ready after {timeout} s")
        return False
