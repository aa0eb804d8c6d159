"""Metrics of how much each client service brought on the newest day that was counted."""

from collections.abc import Iterator

from prometheus_client.core import Metric

from annals import metrics
from history.capacity import shares as recorded
from history.capacity.shares import Brought

# Services with the most bytes have a label of their own.
MOST_CLIENTS = 50
OTHER = "other"


def shares() -> Iterator[Metric]:
    """No samples before the first run of `annals share`."""
    newest = recorded.newest()
    versions, sizes = metrics.SHARE_VERSIONS(), metrics.SHARE_BYTES()
    for client, brought in _bounded(newest.by_client() if newest else []).items():
        for changed in metrics.CHANGED:
            amount = getattr(brought, changed)
            versions.add_metric([client, changed], amount.versions)
            sizes.add_metric([client, changed], amount.bytes)
    yield from (versions, sizes)


def _bounded(clients: list[tuple[str, Brought]]) -> dict[str, Brought]:
    found: dict[str, Brought] = {}
    for number, (client, brought) in enumerate(clients):
        label = client if client and number < MOST_CLIENTS else OTHER
        found[label] = found.get(label, Brought()) + brought
    return found
