"""A server process that outlives the command that started it, found again by its directory: with
`state.json` (pid and ports), `server.log`, `lock`."""

import json
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal

from annals.embedded import process
from annals.embedded.process import EmbeddedError

ATTEMPTS = 50

Mode = Literal["fast", "immediate"]


class ServerProcess(ABC):
    """One server in the directory `home`. It has one loopback port for each of `listeners`."""

    listeners: Sequence[str]
    # What ends it, the gentlest first.
    signals: ClassVar[Sequence[signal.Signals]] = (signal.SIGTERM, signal.SIGKILL)
    # In the log of a start that failed, and may not fail again: another port will be taken.
    passing: ClassVar[Sequence[str]] = ("Address already in use",)

    def __init__(self, home: str | Path) -> None:
        self.home = Path(home).resolve()
        self.log = self.home / "server.log"
        self.state = self.home / "state.json"

    @property
    @abstractmethod
    def marker(self) -> str:
        """A part of this server's command line that no other server's command line has."""

    @abstractmethod
    def command(self, ports: Mapping[str, int]) -> Sequence[str | Path]:
        """Prepare the server to listen on `ports`, and return its command line."""

    def spawn(self, argv: Sequence[str | Path]) -> int:
        """Start the process and return its pid."""
        return process.spawn(argv, self.log, self.home, process.inherited())

    def complete(self) -> None:  # noqa: B027 - most have nothing to do
        """What is left to do at each start, when the server accepts connections."""

    def start(self, timeout: float = 60) -> bool:
        """Start the server; returns when it accepts connections, and False if it ran already.
        Several processes may call it at once. Raises EmbeddedError with the end of the log."""
        with process.exclusive(self.home / "lock"):
            pid = self.pid()
            if pid is None:
                self._launch(timeout)
            else:
                self._await_ready(pid, timeout)
            self.complete()
            return pid is None

    def stop(self, mode: Mode = "fast", timeout: float = 60) -> bool:
        """Stop the server, with a harder signal every `timeout` seconds. `immediate`: without the
        gentlest. False: none was running."""
        with process.exclusive(self.home / "lock"):
            pid = self.pid()
            if pid is None:
                return False
            for sign in self.signals[mode == "immediate" :]:
                if process.end(pid, self.marker, sign, timeout):
                    return True
            raise EmbeddedError(f"the server (pid {pid}) in {self.home} does not end")

    def kill(self) -> None:
        """Send SIGKILL to the server, as the system does when memory runs out."""
        pid = self.pid()
        if pid is not None:
            process.end(pid, self.marker, signal.SIGKILL, 10)

    def running(self) -> bool:
        """Whether the server runs and accepts connections."""
        pid = self.pid()
        return pid is not None and self.accepts(pid)

    def accepts(self, pid: int) -> bool:
        """Whether the server that runs as `pid` accepts connections."""
        return process.listens(pid, self.ports().values())

    def pid(self) -> int | None:
        """The process id of the running server, whoever started it; None if it does not run."""
        pid: int | None = self._state().get("pid")
        return pid if pid is not None and process.alive(pid, self.marker) else None

    def port(self, listener: str | None = None) -> int:
        """The TCP port of a listener (None: the first). It stays the same while it is free."""
        name = listener or self.listeners[0]
        try:
            return self.ports()[name]
        except KeyError:
            raise EmbeddedError(f"{name} in {self.home} was never started") from None

    def ports(self) -> dict[str, int]:
        """The port of each listener, as of the last start."""
        return {name: port for name, port in self._state().items() if name != "pid"}

    def _state(self) -> dict[str, int]:
        try:
            state: dict[str, int] = json.loads(self.state.read_text())
        except FileNotFoundError:
            return {}
        return state

    def _launch(self, timeout: float) -> None:
        """Start the process, again for a while where what is in the way will pass."""
        output = ""
        for _ in range(ATTEMPTS):
            known = self.ports()
            free = process.free_ports([known.get(name) for name in self.listeners])
            ports = dict(zip(self.listeners, free, strict=True))
            argv = self.command(ports)
            offset = self.log.stat().st_size if self.log.exists() else 0
            pid = self.spawn(argv)
            # Written before the server is ready, so that it is known even if this process dies now.
            process.write(self.state, json.dumps({"pid": pid, **ports}))
            if self._await_ready(pid, timeout):
                return
            output = process.tail(self.log, offset)
            if not any(text in output for text in self.passing):
                break
            time.sleep(0.2)
        raise EmbeddedError(f"the server in {self.home} does not start:\n{output}")

    def _await_ready(self, pid: int, timeout: float) -> bool:
        """Wait until the server `pid` accepts connections; False if it ended instead."""
        process.wait(lambda: self.running() or not process.alive(pid, self.marker), timeout)
        if self.running():
            return True
        if process.alive(pid, self.marker):
            raise EmbeddedError(f"the server in {self.home} is not ready after {timeout} s")
        return False
