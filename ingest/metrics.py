"""Prometheus metrics of the consumer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import Counter, Gauge, Histogram

MESSAGES = Counter("annals_messages_total", "Messages by what became of them.", ["topic", "became"])
REJECTS = Counter(
    "annals_quarantined_total", "Messages quarantined, by reason.", ["topic", "reason"]
)
BATCHES = Counter("annals_batches_total", "Batches written.")
BATCH_MESSAGES = Histogram(
    "annals_batch_messages",
    "Messages in a batch.",
    buckets=(1, 10, 100, 500, 1000, 2500, 5000, 10000),
)
WRITE_SECONDS = Histogram(
    "annals_write_seconds",
    "Time to write one batch.",
    buckets=(0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
)
LAG = Gauge(
    "annals_lag_messages", "Messages at the broker and not read yet.", ["topic", "partition"]
)
HALTED = Gauge("annals_halted", "1: reading stopped, too much is bad.", ["topic", "partition"])
PAUSED = Gauge("annals_paused", "1: reading is paused until the database has caught up.")
PARTITIONS = Gauge("annals_partitions_held", "Topic partitions that this consumer reads.")
# Not the state of the process: an endpoint also answers while the loop or a write hangs.
TURN = Gauge(
    "annals_consumer_turn_timestamp_seconds", "Unix time of the latest turn of the consumer's loop."
)
IN_FLIGHT_SECONDS = Gauge(
    "annals_batch_in_flight_seconds", "Age of the batch that is being written; 0: none is."
)
DATABASE_UP = Gauge("annals_database_up", "0 while a write is repeated after an error, else 1.")
DATABASE_UP.set(1)
RETRIES = Counter("annals_write_retries_total", "Tries that the database did not serve.")

LOGS_CUT = Counter(
    "annals_logs_cut_total", "Topic partitions whose log at the broker was found cut."
)


def lag(messages: Mapping[tuple[str, int], int]) -> None:
    """Set the lag of each partition held."""
    LAG.clear()
    for (topic, partition), count in messages.items():
        LAG.labels(topic, partition).set(max(0, count))


def halted(places: Iterable[tuple[str, int]]) -> None:
    """Set which partitions are halted."""
    HALTED.clear()
    for topic, partition in places:
        HALTED.labels(topic, partition).set(1)
