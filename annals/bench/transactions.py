"""`manage.py bench transactions`: one transaction for each message, next to a plain topic.

On Apache Kafka, with the wait for fetch requests that docs/kafka.md recommends.
"""

from __future__ import annotations

import json
import statistics
import sys
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from django.conf import settings
from rich.console import Console
from rich.table import Table

from annals.bench.harness import Harness, finish, harness
from annals.bench.load import produce
from annals.embedded.apache import Apache
from history.entities import ROOT
from ingest.simulator.stream import stream
from ingest.source.message import Message
from ingest.source.producer import TransactionalProducer

PLAIN, TRANSACTIONAL = ROOT.topics
FETCH_WAIT_MS = 500
Figures = dict[str, Any]


def run(messages: int, rounds: int, as_json: bool) -> int:
    """Measure and print. messages: number in each of the two topics. rounds: measurements of both
    topics, in turn."""
    say = Console(stderr=True).print
    with harness(1, Apache(settings.ANNALS.home / "bench" / "apache-kafka")) as bench:
        say(f"producing {messages:,} messages, then each again in a transaction of its own ...")
        sent = _simulated(messages)
        produce(bench, sent)
        _produce_in_transactions(bench, sent)
        say("reading both in turn ...")
        turns = [
            tuple(_rate(bench, topic, messages) for topic in (PLAIN, TRANSACTIONAL))
            for _ in range(rounds)
        ]
    figures: Figures = {
        "messages": messages,
        "fetch_wait_max_ms": FETCH_WAIT_MS,
        "plain_rows_s": round(statistics.median(plain for plain, _ in turns)),
        "transactional_rows_s": round(statistics.median(each for _, each in turns)),
        "ratio": round(statistics.median(each / plain for plain, each in turns), 2),
        "ratios": [round(each / plain, 2) for plain, each in turns],
    }
    if as_json:
        sys.stdout.write(json.dumps(figures) + "\n")
    else:
        _show(figures)
    return 0


def _simulated(count: int) -> list[Message]:
    """Simulated versions of applications, dated within the last two days."""
    start = datetime.now(UTC) - timedelta(days=2)
    of_topic = (e for e in stream(6, start, step=timedelta(days=1) / count) if e.topic == PLAIN)
    return [Message(each.topic, 0, 0, 0, each.key, each.value) for each in islice(of_topic, count)]


def _produce_in_transactions(bench: Harness, sent: list[Message]) -> None:
    producer = TransactionalProducer({"bootstrap.servers": bench.broker.bootstrap_servers()})
    for message in sent:
        producer.send(TRANSACTIONAL, message.key or b"", message.value or b"")


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
    table = Table("", "", title="one transaction for each message", show_header=False)
    for name, value in figures.items():
        table.add_row(name.replace("_", " "), str(value))
    Console(width=None if sys.stdout.isatty() else 120).print(table)
