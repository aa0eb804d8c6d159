"""The consumer from broker to table, next to COPY of the same rows."""

import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from msgspec import structs
from rich.console import Console
from rich.table import Table

from benchmarks.harness import Harness, bare_copy, finish, harness, print_json
from benchmarks.load import TOPIC, Prepared, prepared, produce, simulated
from history.daily.window import Window
from history.kinds import Envelope, EnvelopeForm
from history.record import ChangeType, Record
from history.search_index.keys import NewKeys
from ingest.consumer.lanes import FingerprintCache
from ingest.source.decode import Decoder, decode
from ingest.source.forms import create_parser
from ingest.source.message import Message
from ingest.store.fast_path import store_search_keys

GIANT = 1_000_000
Figures = dict[str, Any]


def run(messages: int, rounds: int, as_json: bool) -> int:
    """Measure and print. messages: number in each run. rounds: measurements of COPY and consumer,
    in turn."""
    say = Console(stderr=True).print
    figures: Figures = {"messages": messages, "cores": os.cpu_count()}
    with harness(6) as bench:
        say(f"making {messages:,} simulated messages ...")
        sent = simulated(messages)
        batches, records = prepared(sent)
        produce(bench, sent)
        say("one consumer against one connection, in turn ...")
        figures["one"] = ratio(bench, batches, messages, rounds, consumers=1)
        figures["two"] = ratio(bench, batches, messages, rounds, consumers=2)
        say("search index ...")
        figures["search_index"] = search_index(bench, records, figures["one"]["consumer_rows_s"])
        del batches, records
        figures["envelopes"] = envelopes(sent[:50_000])
        say("repeats ...")
        figures["repeats"] = repeats(bench, sent, figures["one"]["consumer_rows_s"])
        del sent
    with harness(6) as bench:
        say("fresh: 200 messages a second ...")
        figures["fresh"] = fresh(bench, rate=200, seconds=30)
        say("giants of 1 MB ...")
        figures["giants"] = giants(bench, count=300)
    if as_json:
        print_json("ingest", figures)
    else:
        show(figures)
    return 0


def ratio(
    bench: Harness, batches: list[Prepared], messages: int, rounds: int, consumers: int
) -> Figures:
    """Measure bare COPY and the consumers in turn; medians of the rates and of the ratios.

    cores_allow_rows_s: the rate at which consumers and server alone keep all cores busy.
    """
    turns = [_turn(bench, batches, messages, consumers) for _ in range(rounds)]
    figures: Figures = {name: _median([turn[name] for turn in turns]) for name in turns[0]}
    consumer, server = (figures[f"{who}_cpu_s_per_million"] for who in ("consumer", "server"))
    allow = None if server is None else round((os.cpu_count() or 1) / (consumer + server) * 1e6)
    return {
        "limit_rows_s": round(figures.pop("limit_rows_s")),
        "consumer_rows_s": round(figures.pop("consumer_rows_s")),
        "ratio": round(figures.pop("ratio"), 3),
        "ratios": [round(turn["ratio"], 3) for turn in turns],
        **{name: None if value is None else round(value, 1) for name, value in figures.items()},
        "cores_allow_rows_s": allow,
    }


def _median(values: list[float | None]) -> float | None:
    """The median; None if a value is missing."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if len(known) == len(values) else None


def _spent(before: float | None, after: float | None, messages: int) -> float | None:
    """CPU seconds per million messages; None if they are unknown."""
    return None if before is None or after is None else (after - before) / messages * 1e6


def _turn(bench: Harness, batches: list[Prepared], messages: int, consumers: int) -> Figures:
    bench.empty()
    limit = messages / bare_copy(bench, batches, consumers)
    bench.empty()
    server, broker = bench.server_cpu(), bench.broker_cpu()
    done = bench.consume(consumers)
    server = _spent(server, bench.server_cpu(), messages)
    broker = _spent(broker, bench.broker_cpu(), messages)
    stored = sum(each["stored"] for each in done)
    if stored != messages:
        raise RuntimeError(f"{stored} of {messages} messages were stored")
    # The clock of each consumer starts with its first message. The slowest one counts.
    rate = messages / max(each["active_seconds"] for each in done)
    return {
        "limit_rows_s": limit,
        "consumer_rows_s": rate,
        "ratio": rate / limit,
        "consumer_cpu_s_per_million": sum(each["cpu_seconds"] for each in done) / messages * 1e6,
        "server_cpu_s_per_million": server,
        "broker_cpu_s_per_million": broker,
        "peak_mb": max(each["peak_mb"] for each in done),
        "batch_mean": messages / sum(each["batches"] for each in done),
        "batch_max": max(each["largest_batch"] for each in done),
    }


def search_index(bench: Harness, records: list[Record], rows_s: float) -> Figures:
    """Seconds per million messages to extract and store the business keys, and their share of the
    consumer's time."""
    bench.empty()
    stored_keys = FingerprintCache()
    extracting = storing = 0.0
    stored = 0
    with bench.connect() as connection:
        size = settings.ANNALS.batch_rows
        for start in range(0, len(records), size):
            began = time.perf_counter()
            keys = NewKeys(stored_keys)
            for each in records[start : start + size]:
                keys.add(each)
            new = keys.rows()
            extracted = time.perf_counter()
            with connection.transaction():
                store_search_keys(connection, new)
            stored_keys.update(keys.fingerprints)
            extracting += extracted - began
            storing += time.perf_counter() - extracted
            stored += len(new)
    per_million = 1e6 / len(records)
    return {
        "extract_s_per_million": round(extracting * per_million, 2),
        "store_s_per_million": round(storing * per_million, 2),
        "keys_per_thousand_messages": round(stored / len(records) * 1000, 1),
        "share_of_ingest_time": round((extracting + storing) / (len(records) / rows_s), 3),
    }


def envelopes(sent: list[Message]) -> Figures:
    """Microseconds to decode a message with the contract's envelope, and with a declared one."""
    window = Window.at(datetime.now(UTC), 90, 14)
    names = ("id", "version", "type", "updatedAt", "clientId", "author", "productInstanceId")
    places = tuple((name, f"/payload/{name}") for name in (*names, "data"))
    types = tuple((kind.name, kind.name) for kind in ChangeType)
    shape = create_parser(Envelope(EnvelopeForm.PLAIN, places, types))
    declared = Decoder({message.topic: shape for message in sent})
    wrapped = [
        structs.replace(message, value=b'{"payload":' + (message.value or b"") + b"}")
        for message in sent
    ]
    plain = _seconds(lambda: [decode(message, window) for message in sent])
    other = _seconds(lambda: [declared(message, window) for message in wrapped])
    return {
        "contract_us": round(plain / len(sent) * 1e6, 2),
        "declared_us": round(other / len(sent) * 1e6, 2),
    }


def _seconds(job: Callable[[], object]) -> float:
    """The shortest of three times."""
    times = []
    for _ in range(3):
        began = time.perf_counter()
        job()
        times.append(time.perf_counter() - began)
    return min(times)


def repeats(bench: Harness, sent: list[Message], clean_rows_s: float) -> Figures:
    """Rates for messages of which a tenth or all are stored already."""
    bench.empty()
    bench.consume()
    figures: Figures = {}
    half = len(sent) // 2
    for name, again in (
        ("all", sent[:half]),
        ("tenth", _mixed(simulated(half, seed=2), sent)),
    ):
        produce(bench, again)
        (done,) = bench.consume()
        rate = len(again) / done["active_seconds"]
        figures[name] = {
            "rows_s": round(rate),
            "ratio_to_clean": round(rate / clean_rows_s, 3),
            "repeated": done["repeated"],
            "read": done["read"],
        }
    return figures


def _mixed(fresh: list[Message], stored: list[Message]) -> list[Message]:
    """The fresh messages, with every tenth replaced by a stored one."""
    return [stored[n // 10] if n % 10 == 0 else message for n, message in enumerate(fresh)]


def fresh(bench: Harness, rate: int, seconds: int) -> Figures:
    """Milliseconds from produce to readable in another connection, at a steady rate."""
    consumer = bench.start_consumer()
    producer = bench.producer()
    waiting: dict[str, float] = {}
    times: list[float] = []
    try:
        with bench.connect() as reader:
            _warm(producer, reader)
            messages = simulated(rate * seconds, seed=3)
            began = time.perf_counter()
            for number, message in enumerate(messages):
                while time.perf_counter() - began < number / rate:
                    _look(reader, waiting, times)
                key = f"fresh-{number}"
                value = _envelope(key, json.loads(message.value or b"")["data"] or {})
                waiting[key] = time.perf_counter()
                producer.send(TOPIC, key.encode(), value)
            until = time.perf_counter() + 10
            while waiting and time.perf_counter() < until:
                _look(reader, waiting, times)
    finally:
        consumer.send_signal(signal.SIGTERM)
        finish(consumer)
    times.sort()
    return {
        "messages": len(times),
        "missing": len(waiting),
        **{f"p{p}_ms": round(times[int(len(times) * p / 100)] * 1000, 1) for p in (50, 95, 99)},
        "max_ms": round(times[-1] * 1000, 1),
    }


def _envelope(key: str, data: Any) -> bytes:
    """The value of a message with the current time."""
    now = datetime.now(UTC).isoformat()
    envelope = {"id": key, "version": 0, "type": "CREATE", "updatedAt": now, "clientId": "bench"}
    return json.dumps({**envelope, "data": data}, ensure_ascii=False).encode()


def _look(reader: Any, waiting: dict[str, float], times: list[float]) -> None:
    """Move the times of messages that are readable now from `waiting` to `times`."""
    if not waiting:
        time.sleep(0.0005)
        return
    rows = reader.execute(
        "SELECT id FROM product_instance_aud WHERE id = ANY(%s)"
        " AND updated_at >= date_trunc('day', now(), 'UTC')",
        [list(waiting)],
    ).fetchall()
    now = time.perf_counter()
    times += [now - waiting.pop(name) for (name,) in rows]


def _warm(producer: Any, reader: Any) -> None:
    """Produce messages until the consumer has stored one."""
    number = 0
    while True:
        key = f"warm-{number}"
        producer.send(TOPIC, key.encode(), _envelope(key, {}))
        for _ in range(20):
            time.sleep(0.05)
            if reader.execute("SELECT 1 FROM product_instance_aud LIMIT 1").fetchone():
                return
        number += 1


def giants(bench: Harness, count: int) -> Figures:
    """Peak memory with messages of 1 MB among small ones."""
    bench.empty()
    small = simulated(20_000, seed=4)
    text = "запись " * (GIANT // 13)
    producer = bench.producer()
    every = len(small) // count
    for number, message in enumerate(small):
        producer.send(message.topic, message.key or b"", message.value or b"")
        if number % every == 0:
            key = f"giant-{number}"
            producer.send(TOPIC, key.encode(), _envelope(key, {"text": text}))
    producer.flush()
    (done,) = bench.consume()
    return {"peak_mb": done["peak_mb"], "read": done["read"], "giants": count}


def show(figures: Figures) -> None:
    """The figures as tables."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    table = Table(
        "", "one", "two", title=f"{figures['messages']:,} messages, {figures['cores']} cores"
    )
    for name, value in figures["one"].items():
        table.add_row(name.replace("_", " "), str(value), str(figures["two"][name]))
    console.print(table)
    for part in ("search_index", "envelopes", "repeats", "fresh", "giants"):
        lines = Table("", "", title=part.replace("_", " "), show_header=False)
        for name, value in figures[part].items():
            lines.add_row(name.replace("_", " "), str(value))
        console.print(lines)
