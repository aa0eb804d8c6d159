"""A load for fault tests: threads that record versions of random documents in the outbox."""

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
from annals.embedded.broker import KafkaServer
from outbox.models import Document
from tests.outbox import processes, relays
from tests.outbox.processes import Process


@dataclass(slots=True)
class WriteLoad:
    """Threads that record versions of random documents in the outbox.

    Attributes:
        documents: The number of documents.
        writers: The number of threads.
        recorded: How many versions have been recorded.
        newest: The newest version number of each document by id.
        patient: Whether writers wait while the database is down.
    """

    documents: int
    seed: int
    writers: int = 2
    patient: bool = False
    newest: dict[str, int] = field(default_factory=dict)
    recorded: int = 0
    _threads: list[threading.Thread] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def record_version(self, id: str) -> None:
        """Record one version of the document `id`, and count it."""
        with transaction.atomic():
            version = outbox.record("product-instance", id, {"n": self.recorded, "t": time.time()})
        assert version is not None
        with self._lock:
            self.newest[id] = max(version, self.newest.get(id, 0))
            self.recorded += 1

    def record_slowly(self, id: str, is_open: threading.Event, may_commit: threading.Event) -> None:
        """Record a version, set `is_open`, and wait for `may_commit` before the commit."""
        with transaction.atomic():
            outbox.record("product-instance", id, {})
            is_open.set()
            may_commit.wait(120)
        connection.close()

    def stop(self) -> None:
        """Stop the writers, and wait until they have ended."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def wait_until_sent(self) -> None:
        """Wait until everything recorded so far is sent. The database can be down meanwhile."""
        unsent = Document.objects.filter(waiting_since__lt=timezone.now())

        def is_all_sent() -> bool:
            try:
                return not unsent.exists()
            except OperationalError:
                connection.close()
                return False

        relays.wait_until(is_all_sent, 120)

    @contextmanager
    def run_writers(self) -> Iterator[None]:
        """Run the writers during the block, or until stop()."""
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
        random_source = random.Random(seed)
        try:
            while not self._stop.is_set():
                try:
                    self.record_version(f"A{random_source.randrange(self.documents)}")
                except OperationalError:
                    if not self.patient:
                        raise
                    connection.close()
                    time.sleep(0.1)
                time.sleep(0.002)
        finally:
            connection.close()


def kill_relays_under_load(
    broker: KafkaServer, database: str, log: Path, *, times: int, seed: int
) -> int:
    """Run two relays under load, kill them at random moments, and count the versions they sent.

    Assert that the topic has all versions in order at the end.
    """
    random_source = random.Random(seed)
    load = WriteLoad(documents=100, seed=seed)
    new_relays = [relays.start_relay(broker, database, log) for _ in range(2)]
    with processes.kill_at_end(new_relays) as relay_processes, load.run_writers():
        relays.wait_until(lambda: load.recorded > 50)
        for _ in range(times):
            time.sleep(random_source.uniform(0.0, 0.5))
            index = random_source.randrange(2)
            relay_processes[index].send_signal(signal.SIGKILL)
            relay_processes[index].wait()
            load.wait_until_sent()
            relay_processes[index] = relays.start_relay(broker, database, log)
        load.stop()
        relays.wait_until(lambda: not relays.count_waiting(), 120)
        _terminate_relays(relay_processes)
    relays.check_sent(relays.read_sent(broker), load.newest)
    return load.recorded


def _terminate_relays(relay_processes: list[Process]) -> None:
    for process in relay_processes:
        process.send_signal(signal.SIGTERM)
    for process in relay_processes:
        # A relay that has just started may not have its signal handler yet.
        assert process.wait(120) in (0, -signal.SIGTERM)
