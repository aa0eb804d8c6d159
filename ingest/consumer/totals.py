"""Counts what a run of the consumer did, in totals and as Prometheus metrics."""

import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter

from ingest.consumer import metrics
from ingest.store.batch import Batch
from ingest.store.transaction import WriteResult

# The senders of messages choose the names of services, so their number must be limited.
MOST_CLIENTS, OTHER_CLIENTS = 50, "other"
_CLIENT_ID = attrgetter("record.client_id")


@dataclass(slots=True)
class Totals:
    """The counts of one run, in messages."""

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
    halted: list[str] = field(default_factory=list)  # not read to the end: too many bad messages


class RunMeter:
    """Updates the totals and the metrics."""

    def __init__(self) -> None:
        self.totals = Totals()
        self._clients: set[str] = set()  # the services with a label of their own
        self._began: tuple[float, float] | None = None

    def start_clocks(self) -> None:
        """Start the clocks at the first message."""
        if self._began is None:
            self._began = (time.monotonic(), time.process_time())

    def count_written_batch(self, batch: Batch, written: WriteResult) -> None:
        """Count a batch that is in the database."""
        totals = self.totals
        for source, progress in batch.progress.items():
            counts = {
                "stored": written.stored[source],
                "repeated": written.repeated.get(source, 0),
                "expired": progress.expired,
            }
            counts["quarantined"] = progress.read - sum(counts.values())
            for outcome, count in counts.items():
                setattr(totals, outcome, getattr(totals, outcome) + count)
                if count:
                    metrics.MESSAGES.labels(source.topic, outcome).inc(count)
        totals.read += batch.messages
        totals.batches += 1
        if self._began is not None:
            began, used = self._began
            totals.active_seconds = round(time.monotonic() - began, 3)
            totals.cpu_seconds = round(time.process_time() - used, 3)
        totals.largest_batch = max(totals.largest_batch, batch.messages)
        clients = Counter(map(_CLIENT_ID, chain.from_iterable(batch.rows.values())))
        for client_id, count in clients.items():
            metrics.CLIENTS.labels(self._choose_client_label(client_id)).inc(count)
        for reject in (*batch.rejects, *written.rejects):
            metrics.REJECTS.labels(reject.message.topic, str(reject.reason)).inc()

    def _choose_client_label(self, client_id: str) -> str:
        """Return the value of the label `client`: the first services keep their name."""
        if client_id in self._clients:
            return client_id
        if len(self._clients) >= MOST_CLIENTS:
            return OTHER_CLIENTS
        self._clients.add(client_id)
        return client_id
