"""`python -m benchmarks ingest`: compares the consumer with bare COPY of the same rows."""

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

from benchmarks.harness import Harness, finish_consumer, print_json, start_harness, time_bare_copy
from benchmarks.load import (
    TOPIC,
    CopyTransaction,
    prepare_copy,
    produce_messages,
    simulate_messages,
)
from history.documents.record import ChangeType, Record
from history.kinds import EnvelopeDeclaration, EnvelopeForm
from history.store.days.window import Window
from history.store.search_index.keys import NewSearchKeys
from ingest.consumer.lanes import FingerprintCache
from ingest.messages.decode import Decoder, decode
from ingest.messages.forms import create_parser
from ingest.messages.message import KafkaMessage
from ingest.store.fast_path import store_search_keys

GIANT_BYTES = 1_000_000
Figures = dict[str, Any]


def run(messages: int, rounds: int, as_json: bool) -> int:
    """Measure the consumer, print the figures, and return the exit code.

    Args:
        messages: How many messages each run has.
        rounds: How many times COPY and the consumer are measured, in turn.
    """
    print_progress = Console(stderr=True).print
    figures: Figures = {"messages": messages, "cores": os.cpu_count()}
    with start_harness(6) as bench:
        print_progress(f"making {messages:,} simulated messages ...")
        messages_sent = simulate_messages(messages)
        batches, records = prepare_copy(messages_sent)
        produce_messages(bench, messages_sent)
        print_progress("consumers against connections with bare COPY, in turn ...")
        figures["one"] = measure_ratio(bench, batches, messages, rounds, consumers=1)
        figures["two"] = measure_ratio(bench, batches, messages, rounds, consumers=2)
        print_progress("search index ...")
        figures["search_index"] = measure_search_index(
            bench, records, figures["one"]["consumer_rows_s"]
        )
        del batches, records
        figures["envelopes"] = measure_envelopes(messages_sent[:50_000])
        print_progress("repeats ...")
        figures["repeats"] = measure_repeats(
            bench, messages_sent, figures["one"]["consumer_rows_s"]
        )
        del messages_sent
    with start_harness(6) as bench:
        print_progress("fresh: 200 messages a second ...")
        figures["fresh"] = measure_freshness(bench, rate=200, seconds=30)
        print_progress("giants of 1 MB ...")
        figures["giants"] = measure_giants(bench, count=300)
    if as_json:
        print_json("ingest", figures)
    else:
        print_figures(figures)
    return 0


def measure_ratio(
    bench: Harness, batches: list[CopyTransaction], messages: int, rounds: int, consumers: int
) -> Figures:
    """Measure COPY and the consumers in turn, and return the median of each figure.

    `ratio` is the rate of the consumers divided by the rate of COPY. `cores_allow_rows_s` is the
    rate at which the consumers and the database server would keep all cores busy.
    """
    results = [_measure_round(bench, batches, messages, consumers) for _ in range(rounds)]
    figures: Figures = {
        name: _compute_median([result[name] for result in results]) for name in results[0]
    }
    consumer, server = (figures[f"{side}_cpu_s_per_million"] for side in ("consumer", "server"))
    allowed_rate = (
        None if server is None else round((os.cpu_count() or 1) / (consumer + server) * 1e6)
    )
    return {
        "limit_rows_s": round(figures.pop("limit_rows_s")),
        "consumer_rows_s": round(figures.pop("consumer_rows_s")),
        "ratio": round(figures.pop("ratio"), 3),
        "ratios": [round(result["ratio"], 3) for result in results],
        **{name: None if value is None else round(value, 1) for name, value in figures.items()},
        "cores_allow_rows_s": allowed_rate,
    }


def _compute_median(values: list[float | None]) -> float | None:
    """Return the median, or None if a value is missing."""
    present = [value for value in values if value is not None]
    return statistics.median(present) if len(present) == len(values) else None


def _compute_cpu_per_million(
    earlier: float | None, later: float | None, messages: int
) -> float | None:
    """Return CPU seconds per million messages, or None if they are unknown."""
    return None if earlier is None or later is None else (later - earlier) / messages * 1e6


def _measure_round(
    bench: Harness, batches: list[CopyTransaction], messages: int, consumers: int
) -> Figures:
    """Measure COPY over as many connections as there are consumers, and then the consumers."""
    bench.empty_tables()
    limit = messages / time_bare_copy(bench, batches, consumers)
    bench.empty_tables()
    server, broker = bench.measure_server_cpu(), bench.measure_broker_cpu()
    summaries = bench.run_consumers(consumers)
    server = _compute_cpu_per_million(server, bench.measure_server_cpu(), messages)
    broker = _compute_cpu_per_million(broker, bench.measure_broker_cpu(), messages)
    stored = sum(summary["stored"] for summary in summaries)
    if stored != messages:
        raise RuntimeError(f"{stored} of {messages} messages were stored")
    # Each consumer measures the time from its first message. The slowest consumer counts.
    rate = messages / max(summary["active_seconds"] for summary in summaries)
    return {
        "limit_rows_s": limit,
        "consumer_rows_s": rate,
        "ratio": rate / limit,
        "consumer_cpu_s_per_million": sum(summary["cpu_seconds"] for summary in summaries)
        / messages
        * 1e6,
        "server_cpu_s_per_million": server,
        "broker_cpu_s_per_million": broker,
        "peak_mb": max(summary["peak_mb"] for summary in summaries),
        "batch_mean": messages / sum(summary["batches"] for summary in summaries),
        "batch_max": max(summary["largest_batch"] for summary in summaries),
    }


def measure_search_index(bench: Harness, records: list[Record], rows_s: float) -> Figures:
    """Measure how many seconds the search keys of a million messages take.

    The figures are the time to extract the search keys, the time to store them, and the sum of
    both as a share of the whole time of ingest.

    Args:
        rows_s: The rate of ingest in rows a second.
    """
    bench.empty_tables()
    stored_keys = FingerprintCache()
    extracting = storing = 0.0
    stored = 0
    with bench.connect() as connection:
        size = settings.ANNALS.batch_rows
        for start in range(0, len(records), size):
            began = time.perf_counter()
            keys = NewSearchKeys(stored_keys)
            for record in records[start : start + size]:
                keys.add_record(record)
            new_rows = keys.list_rows()
            extracted = time.perf_counter()
            with connection.transaction():
                store_search_keys(connection, new_rows)
            stored_keys.update(keys.fingerprints)
            extracting += extracted - began
            storing += time.perf_counter() - extracted
            stored += len(new_rows)
    per_million = 1e6 / len(records)
    return {
        "extract_s_per_million": round(extracting * per_million, 2),
        "store_s_per_million": round(storing * per_million, 2),
        "keys_per_thousand_messages": round(stored / len(records) * 1000, 1),
        "share_of_ingest_time": round((extracting + storing) / (len(records) / rows_s), 3),
    }


def measure_envelopes(messages: list[KafkaMessage]) -> Figures:
    """Measure how many microseconds the decoding of a message takes.

    The same messages are decoded with the envelope of the contract, and with a declared envelope.
    """
    window = Window.at(datetime.now(UTC), 90, 14)
    names = ("id", "version", "type", "updatedAt", "clientId", "author", "productInstanceId")
    places = tuple((name, f"/payload/{name}") for name in (*names, "data"))
    types = tuple((kind.name, kind.name) for kind in ChangeType)
    shape = create_parser(EnvelopeDeclaration(EnvelopeForm.PLAIN, places, types))
    declared = Decoder({message.topic: shape for message in messages})
    wrapped = [
        structs.replace(message, value=b'{"payload":' + (message.value or b"") + b"}")
        for message in messages
    ]
    contract_seconds = _time_shortest(lambda: [decode(message, window) for message in messages])
    declared_seconds = _time_shortest(lambda: [declared(message, window) for message in wrapped])
    return {
        "contract_us": round(contract_seconds / len(messages) * 1e6, 2),
        "declared_us": round(declared_seconds / len(messages) * 1e6, 2),
    }


def _time_shortest(job: Callable[[], object]) -> float:
    """Run a job three times, and return the shortest time in seconds."""
    times = []
    for _ in range(3):
        began = time.perf_counter()
        job()
        times.append(time.perf_counter() - began)
    return min(times)


def measure_repeats(bench: Harness, messages: list[KafkaMessage], clean_rows_s: float) -> Figures:
    """Measure how fast a consumer reads messages if all or a tenth of them are stored already.

    Args:
        messages: The messages that are in Kafka already. They are stored first.
        clean_rows_s: The rate of ingest if no version is stored before, for comparison.
    """
    bench.empty_tables()
    bench.run_consumers()
    figures: Figures = {}
    half = len(messages) // 2
    for name, repeated in (
        ("all", messages[:half]),
        ("tenth", _mix_messages(simulate_messages(half, seed=2), messages)),
    ):
        produce_messages(bench, repeated)
        (summary,) = bench.run_consumers()
        rate = len(repeated) / summary["active_seconds"]
        figures[name] = {
            "rows_s": round(rate),
            "ratio_to_clean": round(rate / clean_rows_s, 3),
            "repeated": summary["repeated"],
            "read": summary["read"],
        }
    return figures


def _mix_messages(fresh: list[KafkaMessage], stored: list[KafkaMessage]) -> list[KafkaMessage]:
    """Return the fresh messages with every tenth replaced by a stored one."""
    return [stored[n // 10] if n % 10 == 0 else message for n, message in enumerate(fresh)]


def measure_freshness(bench: Harness, rate: int, seconds: int) -> Figures:
    """Send messages at a steady rate, and measure how long it takes until a message can be read."""
    consumer = bench.start_consumer()
    producer = bench.make_producer()
    waiting: dict[str, float] = {}
    times: list[float] = []
    try:
        with bench.connect() as reader:
            _wait_for_first_row(producer, reader)
            messages = simulate_messages(rate * seconds, seed=3)
            began = time.perf_counter()
            for number, message in enumerate(messages):
                while time.perf_counter() - began < number / rate:
                    _note_readable(reader, waiting, times)
                key = f"fresh-{number}"
                value = _make_message_value(key, json.loads(message.value or b"")["data"] or {})
                waiting[key] = time.perf_counter()
                producer.send(TOPIC, key.encode(), value)
            until = time.perf_counter() + 10
            while waiting and time.perf_counter() < until:
                _note_readable(reader, waiting, times)
    finally:
        consumer.send_signal(signal.SIGTERM)
        finish_consumer(consumer)
    times.sort()
    return {
        "messages": len(times),
        "missing": len(waiting),
        **{f"p{p}_ms": round(times[int(len(times) * p / 100)] * 1000, 1) for p in (50, 95, 99)},
        "max_ms": round(times[-1] * 1000, 1),
    }


def _make_message_value(key: str, data: Any) -> bytes:
    """Return the value of a message with the current time."""
    now = datetime.now(UTC).isoformat()
    envelope = {"id": key, "version": 0, "type": "CREATE", "updatedAt": now, "clientId": "bench"}
    return json.dumps({**envelope, "data": data}, ensure_ascii=False).encode()


def _note_readable(connection: Any, waiting: dict[str, float], times: list[float]) -> None:
    """Find messages that can now be read. Add their delays in seconds to `times`.

    Args:
        waiting: By id, when each message was sent. Messages that can be read are removed.
    """
    if not waiting:
        time.sleep(0.0005)
        return
    rows = connection.execute(
        "SELECT id FROM product_instance_aud WHERE id = ANY(%s)"
        " AND updated_at >= date_trunc('day', now(), 'UTC')",
        [list(waiting)],
    ).fetchall()
    now = time.perf_counter()
    times += [now - waiting.pop(name) for (name,) in rows]


def _wait_for_first_row(producer: Any, connection: Any) -> None:
    """Produce messages until the consumer has stored one."""
    number = 0
    while True:
        key = f"warm-{number}"
        producer.send(TOPIC, key.encode(), _make_message_value(key, {}))
        for _ in range(20):
            time.sleep(0.05)
            if connection.execute("SELECT 1 FROM product_instance_aud LIMIT 1").fetchone():
                return
        number += 1


def measure_giants(bench: Harness, count: int) -> Figures:
    """Measure the peak memory of a consumer that reads messages of 1 MB among small ones.

    Args:
        count: The number of messages of 1 MB.
    """
    bench.empty_tables()
    small = simulate_messages(20_000, seed=4)
    text = "запись " * (GIANT_BYTES // 13)
    producer = bench.make_producer()
    every = len(small) // count
    for number, message in enumerate(small):
        producer.send(message.topic, message.key or b"", message.value or b"")
        if number % every == 0:
            key = f"giant-{number}"
            producer.send(TOPIC, key.encode(), _make_message_value(key, {"text": text}))
    producer.flush()
    (summary,) = bench.run_consumers()
    return {"peak_mb": summary["peak_mb"], "read": summary["read"], "giants": count}


def print_figures(figures: Figures) -> None:
    """Print the figures as tables."""
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
