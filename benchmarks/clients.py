"""Measures 16 clients that read timelines while a consumer stores 2,000 messages a second."""

import base64
import http.client
import random
import threading
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from django.conf import settings

from annals.embedded import EmbeddedBroker
from benchmarks.harness import Harness, run_command
from benchmarks.timeline_data import TimelineData
from history.kinds.entities import ENTITIES, get_root

ROOT = get_root()

CLIENTS = 16
MESSAGES_PER_SECOND = 2000


@dataclass(slots=True)
class _ClientFigures:
    """The measurements of one client."""

    times: list[float] = field(default_factory=list)  # milliseconds of each request
    errors: int = 0


def run(data: TimelineData, host: str, port: int, seconds: int) -> dict[str, Any]:
    """Measure the rate of ingest twice: first without clients, then while they read.

    Returns:
        The rate of ingest in both cases, and the times of the clients' requests.
    """
    broker = EmbeddedBroker(settings.ANNALS.home / "bench" / "broker")
    broker.stop()
    broker.start()
    try:
        bench = Harness(data.conninfo, broker)
        topics = [topic for entity in ENTITIES for topic in entity.topics]
        bench.make_producer().create_topics(topics, 3)
        environment = {
            **bench.make_environment(),
            **data.make_environment(),
            "KAFKA_BOOTSTRAP_SERVERS": broker.get_bootstrap_servers(),
        }
        consumer = bench.start_consumer(None, **data.make_environment())
        try:
            alone = _measure_ingest(bench, environment, seconds)
            readers = [_ClientFigures() for _ in range(CLIENTS)]
            threads = _start_clients(readers, data, host, port, seconds)
            during_reads = _measure_ingest(bench, environment, seconds)
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


def _measure_ingest(bench: Harness, environment: dict[str, str], seconds: int) -> float:
    """Simulate messages, and return how many of them the consumer reads in a second.

    The time runs from the start of the simulator until the consumer has read the last message.
    """
    earlier, began = _count_read(bench), time.monotonic()
    seed = str(random.randrange(10**9))  # so that ids differ each time
    run_command(
        environment,
        "simulate",
        "--rps",
        str(MESSAGES_PER_SECOND),
        "--seconds",
        str(seconds),
        "--seed",
        seed,
    )
    latest = -1
    while latest != (latest := _count_read(bench)):
        time.sleep(0.5)
    return round((latest - earlier) / (time.monotonic() - began - 0.5))


def _count_read(bench: Harness) -> int:
    with bench.connect() as connection:
        row = connection.execute("SELECT coalesce(sum(read), 0) FROM ingest_ledger").fetchone()
    return int(row[0]) if row else 0


def _start_clients(
    clients: list[_ClientFigures], data: TimelineData, host: str, port: int, seconds: int
) -> list[threading.Thread]:
    ids = [*data.usual, *data.hot]
    end = time.monotonic() + seconds
    threads = [
        threading.Thread(target=_read_timelines, args=(client, ids, host, port, end))
        for client in clients
    ]
    for thread in threads:
        thread.start()
    return threads


def _read_timelines(
    figures: _ClientFigures, ids: list[str], host: str, port: int, end: float
) -> None:
    secret = base64.b64encode(b"auditor:auditor").decode()
    connection = http.client.HTTPConnection(host, port, timeout=60)
    while time.monotonic() < end:
        path = f"/api/v1/history/{ROOT.name}/{quote(random.choice(ids))}"
        began = time.perf_counter()
        try:
            connection.request("GET", path, headers={"Authorization": f"Basic {secret}"})
            response = connection.getresponse()
            response.read()
            figures.errors += response.status != 200
        except (OSError, http.client.HTTPException):
            figures.errors += 1
            connection.close()
        figures.times.append((time.perf_counter() - began) * 1000)
