"""`python -m tests.citus.cost [DSN]`: processor seconds of a million messages on the coordinator,
the workers and the consumer, by the node that the consumer is connected to.

DSN is that of a coordinator whose workers have joined (default: ANNALS_TEST_CITUS), all on this
machine. Each way gets a database of its own on all nodes, and the same messages.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import django
import psutil
import psycopg

PLAIN, COORDINATOR, WORKER = "plain table", "coordinator", "worker"
WAYS = PLAIN, COORDINATOR, WORKER
PARTITIONS = 3
DAYS = 4


@dataclass(frozen=True)
class Cost:
    """Of one way. Processor seconds of a million messages; workers: of all together; rate: messages
    a second, of everything on this machine; batches: of all messages."""

    way: str
    consumer: float
    coordinator: float
    workers: float
    rate: float
    batches: int


def main() -> int:
    options = _options()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "annals.settings")
    os.environ["DATABASE_URL"] = options.dsn
    django.setup()
    from annals.embedded.broker import Broker
    from benchmarks.load import simulated
    from history.entities import ENTITIES
    from tests.kafka import brokers

    sent = simulated(options.messages)
    with tempfile.TemporaryDirectory(prefix="annals-cost-") as folder:
        broker = Broker(Path(folder) / "broker")
        broker.start()
        try:
            topics = [topic for entity in ENTITIES for topic in entity.topics]
            brokers.create(broker, topics, PARTITIONS)
            measure = Measure(options, broker, Path(folder))
            measure.produce(sent)
            found = [measure.of(way) for way in WAYS]
        finally:
            broker.kill()
    _show(found, options)
    return 0


class Measure:
    """Runs consumers on databases of their own."""

    def __init__(self, options: argparse.Namespace, broker: Any, folder: Path) -> None:
        self._options, self._broker, self._folder = options, broker, folder

    def produce(self, sent: Sequence[Any]) -> None:
        from confluent_kafka import Producer

        producer = Producer({**self._broker.client(), "acks": "all"})
        for number, message in enumerate(sent):
            producer.produce(message.topic, message.value, message.key)
            if number % 1000 == 0:
                producer.flush()
        assert producer.flush(60) == 0

    def of(self, way: str) -> Cost:
        """A consumer of all messages, on a new database. Its own start does not count."""
        from tests.citus.cluster import database

        with database(self._options.dsn) as citus:
            env = self._environment(citus.url)
            self._prepare(env, citus.url, way)
            if way == WORKER:
                env["DATABASE_URL"] = citus.urls[1]
            before, began = [_server(url) for url in citus.urls], time.perf_counter()
            summary = self._consume(env)
            seconds = time.perf_counter() - began
            used = [_server(url) - had for url, had in zip(citus.urls, before, strict=True)]
        if summary["stored"] != self._options.messages:
            raise RuntimeError(f"not every message was stored: {summary}")
        per = 1e6 / self._options.messages
        return Cost(
            way,
            float(summary["cpu_seconds"]) * per,
            used[0] * per,
            sum(used[1:]) * per,
            self._options.messages / seconds,
            summary["batches"],
        )

    def _prepare(self, env: dict[str, str], url: str, way: str) -> None:
        from history import days
        from history.entities import ENTITIES
        from tests.consuming import command

        words = [("migrate", "--verbosity", "0")]
        if way != PLAIN:
            words.append(("distribute", "--shards", str(self._options.shards)))
        for each in words:
            done = command(env, *each)
            if done.returncode:
                raise RuntimeError(done.stderr)
            if each[0] == "migrate":
                today = datetime.now(UTC).date()
                with psycopg.connect(url, autocommit=True) as plain:
                    for entity in ENTITIES:
                        for number in range(DAYS):
                            days.create(plain, entity.table, today + timedelta(1 - number))

    def _consume(self, env: dict[str, str]) -> dict[str, Any]:
        from tests.consuming import Running

        group = f"cost-{secrets.token_hex(4)}"
        running = Running(env, self._folder / "log", "--until-idle", "3", group=group)
        return running.end(3600)

    def _environment(self, url: str) -> dict[str, str]:
        from annals.embedded.postgres import Postgres
        from tests.citus.faults.stand import Spread
        from tests.consuming import environment

        return environment(self._broker, Spread(Postgres(self._folder / "postgres"), "", url))


def _server(url: str) -> float:
    """Processor seconds of a server of this machine until now, with all its processes."""
    from benchmarks.harness import cpu

    with psycopg.connect(url, autocommit=True) as plain:
        postmaster = psutil.Process(plain.info.backend_pid).parent()
        assert postmaster is not None
        return sum(map(cpu, (postmaster, *postmaster.children())))


def _show(found: Sequence[Cost], options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps([asdict(each) for each in found]))
        return
    print(f"{options.messages} messages, {options.shards} shards; CPU seconds a million messages")
    names = "consumer", "coordinator", "workers", "batches", "a second"
    print(f"{'consumer connected to':24}" + "".join(f"{name:>13}" for name in names))
    for each in found:
        figures = each.consumer, each.coordinator, each.workers, each.batches, each.rate
        print(f"{each.way:24}" + "".join(f"{figure:13.0f}" for figure in figures))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.citus.cost",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("dsn", nargs="?", default=os.environ.get("ANNALS_TEST_CITUS"))
    parser.add_argument("--messages", type=int, default=60_000)
    parser.add_argument("--shards", type=int, default=32, help="of each table")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not options.dsn:
        parser.error("give the DSN of the coordinator, or set ANNALS_TEST_CITUS")
    return options


if __name__ == "__main__":
    sys.exit(main())
