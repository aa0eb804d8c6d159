"""Counts what a stream contains: sizes, versions, shares. Memory does not grow with its length."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from history.record import ChangeType
from ingest.simulator.document import APPLICATION, Message
from ingest.simulator.mutable_snapshot import moment
from ingest.simulator.shape import TARGET_SIZES, TARGET_VERSIONS

_CANDIDATES: Final = 2_000


@dataclass(slots=True)
class Tally:
    """Counts of the messages added. Sizes are bytes of the message value."""

    messages: int = 0
    bytes: int = 0
    documents: int = 0
    complete: int = 0
    oldest: int | None = None
    newest: int | None = None
    sizes: Counter[int] = field(default_factory=Counter)
    versions: Counter[int] = field(default_factory=Counter)
    entities: Counter[str] = field(default_factory=Counter)
    types: Counter[ChangeType] = field(default_factory=Counter)
    applications: int = 0
    _interest: Counter[str] = field(default_factory=Counter)

    def add(self, message: Message) -> None:
        size = len(message.value)
        self.messages += 1
        self.bytes += size
        self.sizes[size] += 1
        self.entities[message.entity] += 1
        self.types[message.type] += 1
        at = message.updated_at
        self.oldest = at if self.oldest is None else min(self.oldest, at)
        self.newest = at if self.newest is None else max(self.newest, at)
        if message.complete:
            self.complete += 1
            self.versions[message.version + 1] += 1
        if message.version == 0:
            self.documents += 1
            self.applications += message.entity == APPLICATION
        self._look(message)

    def _look(self, message: Message) -> None:
        """Count how much a timeline of each of the first applications shows."""
        own = message.product_instance_id
        if own in self._interest:
            # A child counts as four versions. After sixteen versions a page shows nothing new.
            worth = 4 if message.version == 0 else int(message.version < 16)
            self._interest[own] += worth
        elif len(self._interest) < _CANDIDATES:
            self._interest[own] = 1

    @property
    def showcase(self) -> str | None:
        """The best application for a demo: many kinds of documents with many versions."""
        best = self._interest.most_common(1)
        return best[0][0] if best else None

    @property
    def mean(self) -> float:
        return self.bytes / self.messages if self.messages else 0.0

    def size_quantiles(self) -> Mapping[float, int | None]:
        return {quantile: at(self.sizes, quantile) for quantile in TARGET_SIZES}

    def version_quantiles(self) -> Mapping[float, int | None]:
        """Of the complete documents: an incomplete one has too few versions."""
        return {quantile: at(self.versions, quantile) for quantile in TARGET_VERSIONS}

    def share(self, entity: str) -> float:
        return self.entities[entity] / self.messages if self.messages else 0.0

    def summary(self) -> dict[str, Any]:
        """For a line of JSON: plain values, quantiles by name (`p50`)."""
        return {
            "messages": self.messages,
            "oldest": None if self.oldest is None else f"{moment(self.oldest * 1000)}Z",
            "newest": None if self.newest is None else f"{moment(self.newest * 1000)}Z",
            "bytes": self.bytes,
            "meanBytes": round(self.mean, 1),
            "sizes": {named(quantile): size for quantile, size in self.size_quantiles().items()},
            "applications": self.applications,
            "documents": self.documents,
            "completeDocuments": self.complete,
            "versions": {named(quantile): n for quantile, n in self.version_quantiles().items()},
            "entities": dict(self.entities),
            "types": {change.name: self.types[change] for change in ChangeType},
            "showcase": self.showcase,
        }


def at(counts: Counter[int], quantile: float) -> int | None:
    """The smallest value that at least this share of the counted values does not exceed; None if
    nothing was counted."""
    left = quantile * counts.total()
    for value in sorted(counts):
        left -= counts[value]
        if left <= 0:
            return value
    return None


def named(quantile: float) -> str:
    return {0.0: "min", 1.0: "max"}.get(quantile, f"p{quantile * 100:g}")
