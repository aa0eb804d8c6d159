"""Sends the messages of a soak: simulated messages, steadily and in bursts, and bad messages."""

import json
import subprocess
from datetime import datetime, timedelta
from typing import IO, Any

from annals.embedded import logins
from history.kinds.entities import get_root
from ingest.kafka.producer import KafkaProducer
from tests.messages import make_value
from tests.soak.recorder import BAD_KEY, EARLY_KEY
from tests.soak.stand import AHEAD, SoakStand

MESSAGES_PER_SECOND, BURST_MESSAGES = 200, 2_000
BAD_TOPIC = get_root().topics[0]


class SoakTraffic:
    """Sends the messages of a soak and counts them."""

    def __init__(self, stand: SoakStand) -> None:
        self.stand = stand
        self.bad = self.early = self.repeats = self.runs = self.filled = 0
        self._outputs: list[tuple[subprocess.Popen[bytes], IO[bytes]]] = []
        self._producer = KafkaProducer(
            {"bootstrap.servers": stand.broker.get_bootstrap_servers(), "log_level": 0}
        )

    def send_at_pace(self, seconds: float) -> None:
        """Start a simulator that sends 200 messages a second for `seconds` seconds.

        A version has the moment at which the simulator sends it.
        """
        self._simulate("--rps", str(MESSAGES_PER_SECOND), "--seconds", f"{seconds:.1f}")

    def send_burst(self) -> None:
        """Start a simulator that sends 2,000 messages as fast as it can.

        The versions have moments of the last 24 hours.
        """
        self._simulate("--messages", str(BURST_MESSAGES), "--days", "1")

    def fill_memory(self, count: int) -> None:
        """Send one version of each of `count` documents.

        Consumers keep fingerprints of the newest documents, up to a limit. Their memory can be
        judged only when this limit is reached.
        """
        now = self.stand.clock.get_now()
        for number in range(count):
            document_id = f"soak-filled-{number}"
            self._send(document_id.encode(), _make_version(document_id, now))
        self.filled += count

    def wait_for_simulators(self) -> None:
        """Wait until all simulators have ended."""
        for child, _ in self._outputs:
            child.wait(600)

    def count_delivered(self) -> int:
        """Return how many messages the simulators report as confirmed.

        Call it after they have ended. A simulator that could not start counts 0. Its exit code is
        reported as a fault elsewhere.
        """
        total = 0
        for _, output in self._outputs:
            output.seek(0)
            lines = output.read().decode().splitlines()
            total += json.loads(lines[-1])["delivered"] if lines else 0
        return total

    def send_strange(self, now: datetime) -> None:
        """Send bad messages of five kinds, a message that is too early, and one message twice.

        The message that is too early becomes good the next day.
        """
        self.runs += 1
        number = self.runs
        wrong_fields: list[dict[str, Any]]
        wrong_fields = [
            {"version": "one"},
            {"type": "UPSERT"},
            {"updatedAt": "yesterday"},
            {"data": []},
        ]
        bodies = [
            b"not JSON",
            *(_make_version(f"soak-{number}", now, **changes) for changes in wrong_fields),
        ]
        for kind, body in enumerate(bodies):
            self._send(BAD_KEY + f"-{number}-{kind}".encode(), body)
            self.bad += 1
        moment_of_early = now + timedelta(days=AHEAD + 1)
        self._send(EARLY_KEY.encode(), _make_version(f"{EARLY_KEY}-{number}", moment_of_early))
        self.early += 1
        for _ in range(2):
            self._send(b"soak-twice", _make_version(f"soak-twice-{number}", now))
        self.repeats += 1

    def flush_producer(self) -> None:
        remaining = self._producer.flush(120)
        if remaining or self._producer.failed:
            raise RuntimeError(f"{remaining} messages left, {self._producer.first_error}")

    def _simulate(self, *arguments: str) -> None:
        number = len(self._outputs) + 1
        output = (self.stand.home / f"simulate-{number}.json").open("w+b")
        arguments = ("manage.py", "simulate", "--json", "--seed", str(number), *arguments)
        child = self.stand.start_process(f"simulate-{number}", logins.OWNER, *arguments, out=output)
        self._outputs.append((child, output))

    def _send(self, key: bytes, value: bytes) -> None:
        self._producer.send(BAD_TOPIC, key, value)


def _make_version(document_id: str, now: datetime, **changes: Any) -> bytes:
    moment = now.replace(tzinfo=None).isoformat(timespec="microseconds")
    data = {"number": document_id, "amount": 1}
    return make_value(
        **{"id": document_id, "version": 1, "updatedAt": moment, "data": data, **changes}
    )
