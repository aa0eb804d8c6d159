"""A server process that outlives its starter and is found again by a file in its directory.

Directory: `state.json` (pid and ports), `server.log`, `lock`.
"""

import json
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from annals.embedded import process
from annals.embedded.process import EmbeddedError

# What confluent_kafka's classes take.
Client = dict[str, str | int | float | bool]

# Programs read settings of their own from the environment; these few cannot be such.
ENVIRONMENT = ("PATH", "HOME", "TMPDIR", "LANG")


class Daemon(ABC):
    """One server in the directory `home`, listening on a loopback port for each of `listeners`."""

    listeners: Sequence[str]

    def __init__(self, home: str | Path) -> None:
        self.home = Path(home).resolve()
        self.log = self.home / "server.log"
        self.state = self.home / "state.json"

    @property
    @abstractmethod
    def marker(self) -> str:
        """What the command line of this server has and that of no other."""

    @abstractmethod
    def command(self, ports: Mapping[str, int]) -> Sequence[str | Path]:
        """Prepare what the server needs to listen on `ports`, and give its command line."""

    def start(self, timeout: float = 60) -> bool:
        """Start, and return whether it had to be started. Returns once it accepts connections.

        Safe to call from several processes at once. Raises EmbeddedError with the log's end.
        """
        with process.exclusive(self.home / "lock"):
            if self.pid() is not None:
                return False
            offset = self.log.stat().st_size if self.log.exists() else 0
            # Between asking for a free port and using it somebody else can take it.
            for _ in range(3):
                if self._launch(timeout):
                    return True
            said = process.tail(self.log, offset)
            raise EmbeddedError(f"the server in {self.home} does not start:\n{said}")

    def stop(self, timeout: float = 10) -> bool:
        """End it, by force when it does not in `timeout` seconds; whether there was one."""
        with process.exclusive(self.home / "lock"):
            pid = self.pid()
            if pid is None:
                return False
            for sign in (signal.SIGTERM, signal.SIGKILL):
                if process.end(pid, self.marker, sign, timeout):
                    return True
            raise EmbeddedError(f"the server (pid {pid}) in {self.home} does not end")

    def kill(self) -> None:
        """SIGKILL it."""
        pid = self.pid()
        if pid is not None:
            process.end(pid, self.marker, signal.SIGKILL, 10)

    def running(self) -> bool:
        """Whether it runs and accepts connections."""
        return self.pid() is not None and all(map(process.accepts, self.ports().values()))

    def pid(self) -> int | None:
        """The running server's process, whoever started it; None where there is none."""
        pid: int | None = self._state().get("pid")
        return pid if pid is not None and process.alive(pid, self.marker) else None

    def port(self, listener: str | None = None) -> int:
        """A listener's TCP port (of the first: None), kept while nobody else takes it."""
        name = listener or self.listeners[0]
        try:
            return self.ports()[name]
        except KeyError:
            raise EmbeddedError(f"{name} in {self.home} was never started") from None

    def ports(self) -> dict[str, int]:
        """The port of each listener, as of the last start."""
        return {name: port for name, port in self._state().items() if name != "pid"}

    def bootstrap_servers(self, listener: str | None = None) -> str:
        """The address for `bootstrap.servers`. To be asked after `start`."""
        return f"{process.HOST}:{self.port(listener)}"

    def client(self) -> Client:
        """librdkafka settings that reach this server. To be asked after `start`."""
        return {"bootstrap.servers": self.bootstrap_servers()}

    def _state(self) -> dict[str, int]:
        try:
            state: dict[str, int] = json.loads(self.state.read_text())
        except FileNotFoundError:
            return {}
        return state

    def _launch(self, timeout: float) -> bool:
        known = self.ports()
        ports = process.free_ports([known.get(name) for name in self.listeners])
        named = dict(zip(self.listeners, ports, strict=True))
        environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        pid = process.spawn(self.command(named), self.log, self.home, environment)
        # Written before it is ready: a starter that dies while waiting leaves no unknown process.
        draft = self.state.with_suffix(".new")
        draft.write_text(json.dumps({"pid": pid, **named}))
        draft.replace(self.state)

        def ready() -> bool:
            return all(map(process.accepts, ports))

        process.wait(lambda: ready() or not process.alive(pid, self.marker), timeout)
        if process.alive(pid, self.marker) and ready():
            return True
        process.end(pid, self.marker, signal.SIGKILL, 10)
        return False
