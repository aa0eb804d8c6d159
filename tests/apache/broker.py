"""One node of Apache Kafka (KRaft, no ZooKeeper) on the loopback address; needs Java 17 or later.

For the tests, and to try Annals with Apache Kafka without a cluster (`scripts/kafka`). Unlike the
embedded broker it keeps its data over a restart.
"""

import argparse
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from annals.configuration import env
from annals.embedded import process
from annals.embedded.broker import KafkaConfig, KafkaServer
from annals.embedded.process import EmbeddedError
from history.common import private_files
from tests.apache import certificates, kafka_jars

USER = "annals"
MECHANISM = "SCRAM-SHA-512"

# The name of each listener is its security protocol.
OPEN = ("PLAINTEXT", "CONTROLLER")
SECURED = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")

JAVA_OPTIONS = (
    "-Xms256m",
    "-Xmx512m",
    # The garbage collector with the smallest memory and the fastest start.
    "-XX:+UseSerialGC",
    "-Djava.net.preferIPv4Stack=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
)
# Java's second compiler takes half of the processor time of a start. Without it the node starts
# faster, but is slower under a lasting load.
QUICK = "-XX:TieredStopAtLevel=1"

SETTINGS: Mapping[str, str | int] = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    # A single node does not have to wait for other members.
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
    "message.max.bytes": 8 * 1024 * 1024,
    # The default of 128 MB is a quarter of the heap.
    "log.cleaner.dedupe.buffer.size": 8 * 1024 * 1024,
}


class Apache(KafkaServer):
    """A node in the directory `home`, which is formatted at the first start.

    Args:
        secured: Whether to add listeners for TLS and SASL/SCRAM-SHA-512, with a new certificate
            authority (`ca.pem`) and password (`password`) in `home`.
        settings: Values of server.properties that override SETTINGS.
        quick: Whether to start fast for a short use. See QUICK.
    """

    def __init__(
        self,
        home: str | Path,
        secured: bool = False,
        settings: Mapping[str, str | int] | None = None,
        quick: bool = False,
    ) -> None:
        super().__init__(home)
        self.secured = secured
        self.listeners = (*OPEN, *(SECURED if secured else ()))
        self.settings = {**SETTINGS, **(settings or {})}
        self.java_options = (*JAVA_OPTIONS, *((QUICK,) if quick else ()))
        self.properties = self.home / "server.properties"

    @property
    def marker(self) -> str:
        return f"kafka.Kafka {self.properties}"

    def build_command(self, ports: Mapping[str, int]) -> Sequence[str | Path]:
        classpath = f"{kafka_jars.fetch_jars()}/*"
        private_files.write_private_file(self.properties, self._render(ports))
        if not (self.home / "data" / "meta.properties").exists():
            self._format(classpath)
        return (find_java(), *self.java_options, "-cp", classpath, "kafka.Kafka", self.properties)

    def make_client_config(self, protocol: str = "PLAINTEXT") -> KafkaConfig:
        """Return the librdkafka settings for a listener of this node. Call it after `start`."""
        settings: KafkaConfig = {
            "bootstrap.servers": self.get_bootstrap_servers(protocol),
            "security.protocol": protocol,
        }
        if protocol.endswith("SSL"):
            settings["ssl.ca.location"] = str(self.home / "ca.pem")
        if protocol.startswith("SASL"):
            settings |= {
                "sasl.mechanism": MECHANISM,
                "sasl.username": USER,
                "sasl.password": (self.home / "password").read_text(),
            }
        return settings

    def describe(self) -> str:
        """Return a text with the state and the addresses of the node.

        The text has the path of the password file, but not the password.
        """
        if not self.is_running():
            return f"Apache Kafka {kafka_jars.VERSION}: not running, {self.home}"
        lines = [f"Apache Kafka {kafka_jars.VERSION}: running, pid {self.find_pid()}, {self.home}"]
        for name, port in self.get_ports().items():
            if name != "CONTROLLER":
                lines.append(f"  {name:<15}{process.HOST}:{port}")
        if SECURED[0] in self.get_ports():
            lines.append(f"  authority      {self.home / 'ca.pem'}")
            lines.append(f"  {MECHANISM}  user {USER}, password in {self.home / 'password'}")
        return "\n".join(lines)

    def _render(self, ports: Mapping[str, int]) -> str:
        """Return the text of server.properties for these ports."""
        addresses = {name: f"{process.HOST}:{port}" for name, port in ports.items()}
        protocols = {name: "PLAINTEXT" if name == "CONTROLLER" else name for name in ports}
        settings: dict[str, str | int] = {
            **self.settings,
            "listeners": ",".join(f"{name}://{address}" for name, address in addresses.items()),
            "listener.security.protocol.map": ",".join(map(":".join, protocols.items())),
            "controller.quorum.voters": f"1@{addresses['CONTROLLER']}",
            "log.dirs": str(self.home / "data"),
        }
        if self.secured:
            store = self.home / "server.pem"
            if not store.exists():
                certificates.make_certificates(self.home)
            settings |= {
                "sasl.enabled.mechanisms": MECHANISM,
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(store),
            }
            for name in ("sasl_plaintext", "sasl_ssl"):
                settings[f"listener.name.{name}.{MECHANISM.lower()}.sasl.jaas.config"] = (
                    "org.apache.kafka.common.security.scram.ScramLoginModule required;"
                )
        return "".join(f"{name}={value}\n" for name, value in sorted(settings.items()))

    def _format(self, classpath: str) -> None:
        """Create the storage of the node, with the password of the SASL user."""
        shutil.rmtree(self.home / "data", ignore_errors=True)
        # Also without secured listeners: a later start may add them.
        password = private_files.write_private_file(
            self.home / "password", process.generate_password()
        ).read_text()
        words = (
            *JAVA_OPTIONS,
            QUICK,
            "-cp",
            classpath,
            "kafka.tools.StorageTool",
            "format",
            "--cluster-id",
            secrets.token_urlsafe(16).replace("-", "A"),
            "--config",
            str(self.properties),
            "--add-scram",
            f"{MECHANISM}=[name={USER},password={password}]",
        )
        # The words go through a file, because every user of the machine can read command lines.
        file = private_files.write_private_file(
            self.home / "format.arguments", "".join(map(_quote_argument, words))
        )
        try:
            finished = subprocess.run(
                [find_java(), f"@{file}"],
                check=False,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
            )
        finally:
            file.unlink()
        if finished.returncode:
            raise EmbeddedError(f"Kafka's storage tool failed:\n{finished.stdout}{finished.stderr}")


def _quote_argument(word: str) -> str:
    """Return a word as a line of an argument file of the program `java`."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"\n'


def find_java() -> str:
    """Return the Java program of JAVA_HOME, or if that is not set, of PATH."""
    home = os.environ.get("JAVA_HOME")
    executable = shutil.which("java", path=f"{home}/bin" if home else None)
    if executable is None:
        raise EmbeddedError("Apache Kafka needs Java 17 or later: install it (java)")
    return executable


def main() -> None:
    """Start, stop or show the node in ANNALS_HOME/apache-kafka, as `scripts/kafka` asks."""
    parser = argparse.ArgumentParser(prog="scripts/kafka", description=__doc__)
    parser.add_argument(
        "action", choices=["start", "stop", "status"], help="what to do with the node"
    )
    parser.add_argument("--secured", action="store_true", help="add TLS and SASL/SCRAM listeners")
    options = parser.parse_args()
    home = Path(os.environ.get("ANNALS_HOME") or ".annals")
    node = Apache(home / "apache-kafka", options.secured)
    try:
        env.refuse_untrusted_home(home)
        if options.action == "start":
            node.start()
        elif options.action == "stop":
            node.stop()
    except (EmbeddedError, env.SettingError) as error:
        sys.exit(f"scripts/kafka: {error}")
    print(node.describe())


if __name__ == "__main__":
    main()
