"""What is sent: the simulator at its pace and in bursts, and messages that are bad on purpose."""

import json
import subprocess
from datetime import datetime, timedelta
from typing import IO, Any

from annals.embedded import logins
from history.entities import root
from ingest.source.producer import KafkaProducer
from tests.messages import value
from tests.soak.recorder import BAD_KEY, EARLY_KEY
from tests.soak.stand import AHEAD, Stand

RATE, BURST = 200, 2_000
BAD_TOPIC = root().topics[0]


class Traffic:
    """Counts what it sends. Call close() at the end."""

    def __init__(self, stand: Stand) -> None:
        self.stand = stand
        self.bad = self.early = self.repeats = self.runs = self.filled = 0
        self._outputs: list[tuple[subprocess.Popen[bytes], IO[bytes]]] = []
        self._producer = KafkaProducer(
            {"bootstrap.servers": stand.broker.bootstrap_servers(), "log_level": 0}
        )

    def pace(self, seconds: float) -> None:
        """200 messages a second, dated from now on, for so many seconds."""
        self._simulate("--rps", str(RATE), "--seconds", f"{seconds:.1f}")

    def burst(self) -> None:
        """2,000 messages at once, of applications that lived since yesterday."""
        self._simulate("--messages", str(BURST), "--days", "1")

    def fill(self, count: int) -> None:
        """So many documents, each once: the consumers remember the last ones that they have seen,
        and their memory is measured when they remember as many as they may."""
        now = self.stand.clock.now()
        for number in range(count):
            id_ = f"soak-filled-{number}"
            self._send(id_.encode(), _version(id_, now))
        self.filled += count

    def wait(self) -> None:
        """Until the simulators have ended."""
        for child, _ in self._outputs:
            child.wait(600)

    def delivered(self) -> int:
        """What the simulators say that the broker has confirmed; 0 for one that could not start,
        whose exit code is a fault anyway. Call it after wait()."""
        total = 0
        for _, output in self._outputs:
            output.seek(0)
            lines = output.read().decode().splitlines()
            total += json.loads(lines[-1])["delivered"] if lines else 0
        return total

    def strange(self, now: datetime) -> None:
        """Bad messages of five kinds; one that is good from tomorrow on; and one sent twice."""
        self.runs += 1
        number = self.runs
        wrong: list[dict[str, Any]]
        wrong = [{"version": "one"}, {"type": "UPSERT"}, {"updatedAt": "yesterday"}, {"data": []}]
        bodies = [b"not JSON", *(_version(f"soak-{number}", now, **each) for each in wrong)]
        for kind, body in enumerate(bodies):
            self._send(BAD_KEY + f"-{number}-{kind}".encode(), body)
            self.bad += 1
        later = now + timedelta(days=AHEAD + 1)
        self._send(EARLY_KEY.encode(), _version(f"{EARLY_KEY}-{number}", later))
        self.early += 1
        for _ in range(2):
            self._send(b"soak-twice", _version(f"soak-twice-{number}", now))
        self.repeats += 1

    def close(self) -> None:
        left = self._producer.flush(120)
        if left or self._producer.failed:
            raise RuntimeError(f"{left} messages left, {self._producer.first_error}")

    def _simulate(self, *words: str) -> None:
        number = len(self._outputs) + 1
        output = (self.stand.home / f"simulate-{number}.json").open("w+b")
        words = ("manage.py", "simulate", "--json", "--seed", str(number), *words)
        child = self.stand.run(f"simulate-{number}", logins.OWNER, *words, out=output)
        self._outputs.append((child, output))

    def _send(self, key: bytes, value: bytes) -> None:
        self._producer.send(BAD_TOPIC, key, value)


def _version(id_: str, now: datetime, **changes: Any) -> bytes:
    moment = now.replace(tzinfo=None).isoformat(timespec="microseconds")
    data = {"number": id_, "amount": 1}
    return value(**{"id": id_, "version": 1, "updatedAt": moment, "data": data, **changes})
