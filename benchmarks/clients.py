"""16 clients that read timelines while ingest runs at 2,000 messages per second."""

import base64
import http.client
import random
import threading
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from django.conf import settings

from annals.embedded import Broker
from benchmarks.harness import Harness, manage
from benchmarks.timeline_data import DataSet
from history.entities import ENTITIES, root

ROOT = root()

CLIENTS = 16
RPS = 2000


@dataclass(slots=True)
class _Reader:
    """The answers that one client got; times in milliseconds."""

    times: list[float] = field(default_factory=list)
    errors: int = 0


def run(found: DataSet, host: str, port: int, seconds: int) -> dict[str, Any]:
    """Run ingest alone, then with the clients. The figures: rows per second of both runs, and the
    clients' answers."""
    broker = Broker(settings.ANNALS.home / "bench" / "broker")
    broker.stop()
    broker.start()
    try:
        bench = Harness(found.conninfo, broker)
        topics = [topic for entity in ENTITIES for topic in entity.topics]
        bench.producer().create_topics(topics, 3)
        environment = {**bench.environment(), **found.environment(),
                       "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers()}  # fmt: skip
        consumer = bench.start_consumer(None, **found.environment())
        try:
            alone = _ingested(bench, environment, seconds)
            readers = [_Reader() for _ in range(CLIENTS)]
            threads = _start(readers, found, host, port, seconds)
            during_reads = _ingested(bench, environment, seconds)
            for thread in threads:
                thread.join()
        finally:
            consumer.terminate()
            consumer.wait(30)
    finally:
        broker.stop()
    times = sorted(time for reader in readers for time in reader.times)
    return {
        "clients": CLIENTS,
        "requests": len(times),
        "requests_per_second": round(len(times) / seconds),
        "errors": sum(reader.errors for reader in readers),
        "p50_ms": round(times[len(times) // 2], 1) if times else None,
        "p99_ms": round(times[len(times) * 99 // 100], 1) if times else None,
        "ingest_alone_per_second": alone,
        "ingest_during_reads_per_second": during_reads,
    }


def _ingested(bench: Harness, environment: dict[str, str], seconds: int) -> float:
    """Messages per second that were read, from the simulator's first to its last."""
    before, began = _settled(bench), time.monotonic()
    seed = str(random.randrange(10**9))  # other ids each time
    manage(environment, "simulate", "--rps", str(RPS), "--seconds", str(seconds), "--seed", seed)
    last = -1
    while last != (last := _settled(bench)):
        time.sleep(0.5)
    return round((last - before) / (time.monotonic() - began - 0.5))


def _settled(bench: Harness) -> int:
    with bench.connect() as connection:
        row = connection.execute("SELECT coalesce(sum(read), 0) FROM ingest_ledger").fetchone()
    return int(row[0]) if row else 0


def _start(
    readers: list[_Reader], found: DataSet, host: str, port: int, seconds: int
) -> list[threading.Thread]:
    ids = [*found.usual, *found.hot]
    end = time.monotonic() + seconds
    threads = [
        threading.Thread(target=_read, args=(reader, ids, host, port, end)) for reader in readers
    ]
    for thread in threads:
        thread.start()
    return threads


def _read(reader: _Reader, ids: list[str], host: str, port: int, end: float) -> None:
    secret = base64.b64encode(b"auditor:auditor").decode()
    client = http.client.HTTPConnection(host, port, timeout=60)
    while time.monotonic() < end:
        path = f"/api/v1/history/{ROOT.name}/{quote(random.choice(ids))}"
        began = time.perf_counter()
        try:
            client.request("GET", path, headers={"Authorization": f"Basic {secret}"})
            response = client.getresponse()
            response.read()
            reader.errors += response.status != 200
        except (OSError, http.client.HTTPException):
            reader.errors += 1
            client.close()
        reader.times.append((time.perf_counter() - began) * 1000)
