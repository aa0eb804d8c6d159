"""`annals bench transactions`: topics in which every second offset has no message, next to a
plain one: one transaction for each message, and a topic that was compacted.

On Apache Kafka, with the wait for fetch requests that docs/kafka.md recommends.
"""

from __future__ import annotations

import statistics
import sys
import time
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

from django.conf import settings
from rich.console import Console
from rich.table import Table

from annals.bench.harness import Harness, finish, harness
from annals.bench.load import confirm, produce
from annals.bench.printed import print_json
from annals.embedded.apache import Apache
from history.entities import root
from ingest.simulator.stream import stream
from ingest.source.message import Message
from ingest.source.producer import Producer, TransactionalProducer

ROOT = root()

PLAIN, WITH_HOLES = ROOT.topics
FETCH_WAIT_MS = 500
# The cleaner compacts at once, and all but the last megabyte.
BROKER = {"log.cleaner.backoff.ms": 200}
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.bytes": str(1 << 20),
    "delete.retention.ms": "0",
}
CLEANED_IN_SECONDS = 120
Figures = dict[str, Any]
Turns = list[tuple[float, float]]


def run(messages: int, rounds: int, as_json: bool) -> int:
    """Measure and print. messages: number in each topic. rounds: measurements of each topic with
    holes, in turn with the plain one."""
    say = Console(stderr=True).print
    broker = Apache(settings.ANNALS.home / "bench" / "apache-kafka", settings=BROKER)
    with harness(1, broker) as bench:
        say(f"producing {messages:,} messages, then each again in a transaction of its own ...")
        sent = _simulated(messages)
        produce(bench, sent)
        _produce_in_transactions(bench, sent)
        say("reading both in turn ...")
        transactional = _turns(bench, messages, rounds)
        say("producing each twice into a topic that is compacted ...")
        _produce_compacted(bench, sent, broker.home / "data" / f"{WITH_HOLES}-0")
        say("reading it in turn with the plain one ...")
        compacted = _turns(bench, messages, rounds)
    plain = [rate for rate, _ in transactional + compacted]
    figures: Figures = {
        "messages": messages,
        "fetch_wait_max_ms": FETCH_WAIT_MS,
        "plain_rows_s": round(statistics.median(plain)),
        **_compared("transactional", transactional),
        **_compared("compacted", compacted),
    }
    if as_json:
        print_json("transactions", figures)
    else:
        _show(figures)
    return 0


def _compared(name: str, turns: Turns) -> Figures:
    return {
        f"{name}_rows_s": round(statistics.median(each for _, each in turns)),
        f"{name}_ratio": round(statistics.median(each / plain for plain, each in turns), 2),
        f"{name}_ratios": [round(each / plain, 2) for plain, each in turns],
    }


def _turns(bench: Harness, messages: int, rounds: int) -> Turns:
    return [
        (_rate(bench, PLAIN, messages), _rate(bench, WITH_HOLES, messages)) for _ in range(rounds)
    ]


def _simulated(count: int) -> list[Message]:
    """Simulated versions of applications, dated within the last two days."""
    start = datetime.now(UTC) - timedelta(days=2)
    of_topic = (e for e in stream(6, start, step=timedelta(days=1) / count) if e.topic == PLAIN)
    return [Message(each.topic, 0, 0, 0, each.key, each.value) for each in islice(of_topic, count)]


def _produce_in_transactions(bench: Harness, sent: list[Message]) -> None:
    producer = TransactionalProducer({"bootstrap.servers": bench.broker.bootstrap_servers()})
    for message in sent:
        producer.send(WITH_HOLES, message.key or b"", message.value or b"")


def _produce_compacted(bench: Harness, sent: list[Message], log: Path) -> None:
    """Each message twice under a key of its own, into a new topic: compaction removes the first.
    log: the broker's directory of the topic."""
    # Two equal messages in one compressed batch would need the space of one.
    servers = bench.broker.bootstrap_servers()
    producer = Producer({"bootstrap.servers": servers, "compression.type": "none"})
    producer.delete_topics([WITH_HOLES])
    while log.exists():  # the broker renames it
        time.sleep(0.1)
    producer.create_topics([WITH_HOLES], 1, COMPACTED)
    for number, message in enumerate(sent):
        for _ in range(2):
            producer.send(WITH_HOLES, b"%d" % number, message.value or b"")
    confirm(producer)
    whole = 2 * sum(message.size for message in sent)
    until = time.monotonic() + CLEANED_IN_SECONDS
    while _bytes(log) > 0.6 * whole:
        if time.monotonic() > until:
            raise RuntimeError("the broker did not compact the topic; send more messages")
        time.sleep(0.5)


def _bytes(log: Path) -> int:
    return sum(each.stat().st_size for each in log.glob("*.log"))


def _rate(bench: Harness, topic: str, messages: int) -> float:
    """Messages per second of one consumer, from the first message to the last commit."""
    bench.empty()
    consumer = bench.start_consumer(
        until_idle=3, topics=topic, ANNALS_KAFKA_FETCH_WAIT_MAX_MS=str(FETCH_WAIT_MS)
    )
    summary = finish(consumer).summary
    if summary["stored"] != messages:
        raise RuntimeError(f"{summary['stored']} of {messages} messages were stored")
    return float(messages / summary["active_seconds"])


def _show(figures: Figures) -> None:
    table = Table("", "", title="every second offset without a message", show_header=False)
    for name, value in figures.items():
        table.add_row(name.replace("_", " "), str(value))
    Console(width=None if sys.stdout.isatty() else 120).print(table)
