"""What users of Annals see during an upgrade: answers of the web, and how far the ledger is."""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg

from tests.attack.web import Web

PATHS = (
    "/api/v1/history/product-instance/d0?pageSize=5",
    "/api/v1/applications/d0/history?pageSize=5",
    "/api/v1/search?q=N-5",
    "/api/v1/completeness",
)
PAUSE_S = 0.1
LOOK_S = 0.05

Place = tuple[str, int]


@dataclass
class Pauses:
    """The longest time in seconds without progress, of all topic partitions together and of one
    of them, while messages came to all."""

    group: float = 0.0
    partition: float = 0.0


@dataclass
class Watch:
    """phase: what happens now; everything is counted under its name."""

    phase: str = "start"
    statuses: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    bodies: dict[int, str] = field(default_factory=dict)
    pauses: dict[str, Pauses] = field(default_factory=lambda: defaultdict(Pauses))
    web: Web | None = None

    @contextmanager
    def looking(self, url: str, clients: int = 2) -> Iterator[None]:
        """Ask the web and the ledger while the block runs."""
        stop = threading.Event()
        threads = [
            threading.Thread(target=self._ask, args=[stop, number]) for number in range(clients)
        ]
        threads.append(threading.Thread(target=self._look, args=[stop, url]))
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def _ask(self, stop: threading.Event, number: int) -> None:
        while not stop.wait(PAUSE_S):
            number += 1
            phase, web = self.phase, self.web
            if web is None:
                continue
            answer = web.get(PATHS[number % len(PATHS)])
            if answer.status == 0 and web is not self.web:
                continue  # it was taken out of the proxy meanwhile, which would ask the other one
            self.statuses[phase][answer.status] += 1
            if answer.status != 200:
                self.bodies.setdefault(answer.status, answer.body.decode("utf-8", "replace")[:300])

    def _look(self, stop: threading.Event, url: str) -> None:
        at: dict[Place, tuple[int, float]] = {}
        moved = time.monotonic()
        phase = self.phase
        with psycopg.connect(url, autocommit=True) as plain:
            while not stop.wait(LOOK_S):
                now = time.monotonic()
                if phase != self.phase:
                    phase = self.phase
                    moved = now  # a pause counts in the phase in which it ends
                rows = plain.execute(
                    "SELECT topic, partition, next_offset FROM ingest_ledger"
                    " WHERE next_offset > first_offset"
                ).fetchall()
                pauses = self.pauses[phase]
                for topic, partition, offset in rows:
                    before, since = at.get((topic, partition), (offset, now))
                    if offset > before:
                        since = moved = now
                    at[topic, partition] = (offset, since)
                    pauses.partition = max(pauses.partition, now - since)
                pauses.group = max(pauses.group, now - moved)
