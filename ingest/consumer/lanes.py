"""Lanes: the claimed partitions are dealt to them, and each has batches of its own."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from history.entities import BY_TOPIC
from history.search_index.keys import Fingerprint
from ingest.source.message import KafkaPartition
from ingest.store.batch import Batch, Claim, Claims, Limits

# Entities of which a consumer remembers the business keys.
REMEMBERED = 30_000


class BoundedCache:
    """Keeps the fingerprints of at least the last `size` names, and at most twice as many."""

    def __init__(self, size: int = REMEMBERED) -> None:
        self._size = size
        self._new: dict[str, Fingerprint] = {}
        self._old: dict[str, Fingerprint] = {}

    def get(self, name: str) -> Fingerprint | None:
        """The last value of a name; None if it is not in the cache."""
        found = self._new.get(name)
        return self._old.get(name) if found is None else found

    def update(self, values: Mapping[str, Fingerprint]) -> None:
        """Set the values of these names."""
        self._new.update(values)
        if len(self._new) >= self._size:
            self._old, self._new = self._new, {}


@dataclass(frozen=True, slots=True)
class Flight:
    """A batch that is being written, and the claims under which it was read."""

    batch: Batch
    claims: Claims
    generation: int


class Lane:
    """One batch that fills, and the one before it that is in flight, with a cache of business keys
    of its own. launched_at: of that one, or else when the lane got its partitions."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.flight: Flight | None = None
        self.launched_at = 0.0
        self.begin(Limits(1, 1))

    def begin(self, limits: Limits, lanes: int = 1) -> None:
        """Begin an empty batch, with no business key known. limits: of the batches of all lanes in
        use together, from now on."""
        self._limits = Limits(max(1, limits.rows // lanes), max(1, limits.bytes // lanes))
        self._fingerprints = BoundedCache(REMEMBERED // lanes)
        self.drop()

    def drop(self) -> None:
        """Begin an empty batch instead of the one that fills."""
        self.filling = Batch(self._limits, self._fingerprints)

    @property
    def ready(self) -> bool:
        """Whether the filling batch can go."""
        return self.flight is None and bool(self.filling.progress)

    def remember(self, fingerprints: Mapping[str, Fingerprint]) -> None:
        """Store these business keys no more: they are stored."""
        self._fingerprints.update(fingerprints)

    def launch(self, claims: Mapping[KafkaPartition, Claim], generation: int, now: float) -> Flight:
        """Put the filling batch in flight, and begin another. Only if it is ready."""
        batch = self.filling
        batch.arrange()
        held = {source: claims[source.kafka] for source in batch.progress}
        self.flight = Flight(batch, held, generation)
        self.launched_at = now
        self.drop()
        return self.flight


def deal(partitions: Iterable[KafkaPartition], lanes: int) -> dict[KafkaPartition, int]:
    """The number of the lane of each partition. Those of one number of a topic and its migration
    twin, with the same documents, share a lane; all others are dealt in turn."""
    partitions = list(partitions)
    places = {
        (topic, number): (BY_TOPIC[topic].name if topic in BY_TOPIC else topic, number)
        for topic, number in partitions
    }
    turns = {place: turn for turn, place in enumerate(sorted(set(places.values())))}
    return {partition: turns[places[partition]] % lanes for partition in partitions}
