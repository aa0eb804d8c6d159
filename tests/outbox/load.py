"""Load for the tests of faults: random versions of some documents, counted."""

import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from django.db import OperationalError, connection, transaction
from django.utils import timezone

import outbox
from annals.embedded.broker import Daemon
from outbox.models import Document
from tests.outbox import processes, relays
from tests.outbox.processes import Process


@dataclass(slots=True)
class Load:
    """Writers in threads. newest: the newest version of each document by id. patient: they wait
    for a database that is away."""

    documents: int
    seed: int
    writers: int = 2
    patient: bool = False
    newest: dict[str, int] = field(default_factory=dict)
    recorded: int = 0
    _threads: list[threading.Thread] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def record(self, id: str) -> None:
        """One version."""
        with transaction.atomic():
            version = outbox.record("product-instance", id, {"n": self.recorded, "t": time.time()})
        assert version is not None
        with self._lock:
            self.newest[id] = max(version, self.newest.get(id, 0))
            self.recorded += 1

    def slowly(self, id: str, opened: threading.Event, done: threading.Event) -> None:
        """A version in a transaction that stays open until `done`."""
        with transaction.atomic():
            outbox.record("product-instance", id, {})
            opened.set()
            done.wait(10)
        connection.close()

    def stop(self) -> None:
        """Returns when nothing more is recorded."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def caught_up(self) -> None:
        """Wait until what is recorded now is sent. The database may be away."""
        behind = Document.objects.filter(waiting_since__lt=timezone.now())

        def nothing() -> bool:
            try:
                return not behind.exists()
            except OperationalError:
                connection.close()
                return False

        relays.until(nothing, 90)

    @contextmanager
    def running(self) -> Iterator[None]:
        """The writers write in the block, or until stop()."""
        self._threads = [
            threading.Thread(target=self._write, args=(self.seed * 1_000 + writer,))
            for writer in range(self.writers)
        ]
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self.stop()

    def _write(self, seed: int) -> None:
        chosen = random.Random(seed)
        try:
            while not self._stop.is_set():
                try:
                    self.record(f"A{chosen.randrange(self.documents)}")
                except OperationalError:
                    if not self.patient:
                        raise
                    connection.close()
                    time.sleep(0.1)
                time.sleep(0.002)
        finally:
            connection.close()


def kills(broker: Daemon, database: str, log: Path, *, times: int, seed: int) -> int:
    """Two relays under load; each time one of them is killed at a random moment and started again.
    All versions are in the topic in the end, in order. Returns how many they are."""
    chosen = random.Random(seed)
    load = Load(documents=100, seed=seed)
    started = [relays.start(broker, database, log) for _ in range(2)]
    with processes.kept(started) as running, load.running():
        relays.until(lambda: load.recorded > 50)
        for _ in range(times):
            time.sleep(chosen.uniform(0.0, 0.5))
            place = chosen.randrange(2)
            running[place].send_signal(signal.SIGKILL)
            running[place].wait()
            load.caught_up()
            running[place] = relays.start(broker, database, log)
        load.stop()
        relays.until(lambda: not relays.waiting(), 60)
        _end(running)
    relays.check(relays.sent(broker), load.newest)
    return load.recorded


def _end(running: list[Process]) -> None:
    for process in running:
        process.send_signal(signal.SIGTERM)
    for process in running:
        # One that has just been started may not have its handler yet.
        assert process.wait(30) in (0, -signal.SIGTERM)
