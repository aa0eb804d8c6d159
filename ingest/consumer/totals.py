"""Counts what a run of the consumer did, in totals and as Prometheus metrics."""

import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

from ingest.consumer import metrics
from ingest.consumer.metric_labels import OUTCOMES
from ingest.store.batch import Batch
from ingest.store.transaction import WriteResult

# How many services get their own value of the label `client`. The number is limited, because the
# producers of messages choose the names of services.
MOST_CLIENTS = 50
# The value of the label `client` for all other services.
OTHER_CLIENTS = "other"
_CLIENT_ID = attrgetter("record.client_id")


@dataclass(slots=True)
class Totals:
    """The counts and times of one run of the consumer. The first five fields count messages."""

    read: int = 0
    stored: int = 0
    repeated: int = 0
    expired: int = 0
    quarantined: int = 0
    batches: int = 0
    largest_batch: int = 0
    # From the first message read to the last batch written, by the wall clock and in CPU time.
    active_seconds: float = 0.0
    cpu_seconds: float = 0.0
    # The partitions that were not read to their end, because they have too many bad messages.
    halted: list[str] = field(default_factory=list)


class Clocks(NamedTuple):
    """The readings of two clocks at one moment, in seconds."""

    wall: float
    cpu: float


class RunMeter:
    """Counts the messages and batches of a run, in its totals and in the metrics."""

    def __init__(self) -> None:
        self.totals = Totals()
        self._clients: set[str] = set()  # the services with their own value of the label `client`
        self._started: Clocks | None = None

    def start_clocks(self) -> None:
        """Begin to measure the `active_seconds` and `cpu_seconds` of the run.

        Call it when messages were read. Only the first call has an effect.
        """
        if self._started is None:
            self._started = Clocks(time.monotonic(), time.process_time())

    def count_written_batch(self, batch: Batch, written: WriteResult) -> None:
        """Count a batch that is in the database."""
        totals = self.totals
        for topic_partition, progress in batch.progress.items():
            stored = written.stored[topic_partition]
            repeated = written.repeated.get(topic_partition, 0)
            expired = progress.expired
            quarantined = progress.read - stored - repeated - expired
            totals.stored += stored
            totals.repeated += repeated
            totals.expired += expired
            totals.quarantined += quarantined
            for outcome, count in zip(
                OUTCOMES, (stored, repeated, expired, quarantined), strict=True
            ):
                if count:
                    metrics.MESSAGES.labels(topic_partition.topic, outcome).inc(count)
        totals.read += batch.messages
        totals.batches += 1
        totals.largest_batch = max(totals.largest_batch, batch.messages)
        if self._started is not None:
            totals.active_seconds = round(time.monotonic() - self._started.wall, 3)
            totals.cpu_seconds = round(time.process_time() - self._started.cpu, 3)
        clients = Counter(map(_CLIENT_ID, chain.from_iterable(batch.rows.values())))
        for client_id, count in clients.items():
            metrics.CLIENTS.labels(self._choose_client_label(client_id)).inc(count)
        for bad_message in (*batch.bad_messages, *written.refused):
            metrics.REJECTS.labels(bad_message.message.topic, str(bad_message.reason)).inc()

    def _choose_client_label(self, client_id: str) -> str:
        """Return the value of the label `client`: the name of a service, or OTHER_CLIENTS.

        Only the first MOST_CLIENTS services get their names.
        """
        if client_id in self._clients:
            return client_id
        if len(self._clients) >= MOST_CLIENTS:
            return OTHER_CLIENTS
        self._clients.add(client_id)
        return client_id
