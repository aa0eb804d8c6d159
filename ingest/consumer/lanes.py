"""Lanes. A lane has a part of the claimed partitions, and collects their messages in batches."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from history.kinds.entities import BY_TOPIC
from history.store.search_index.keys import KeyFingerprint
from ingest.messages.message import KafkaPartition
from ingest.store.batch import Batch, Limits
from ingest.store.claim import Claim, Claims

# For how many documents the lanes of a consumer together remember the search keys.
REMEMBERED = 30_000


class FingerprintCache:
    """A cache with the fingerprints of search keys, for documents that were stored lately.

    Args:
        size: The cache remembers the last `size` documents or more, but less than twice as many.
    """

    def __init__(self, size: int = REMEMBERED) -> None:
        self._size = size
        self._new: dict[str, KeyFingerprint] = {}
        self._old: dict[str, KeyFingerprint] = {}

    def get(self, id: str) -> KeyFingerprint | None:
        """Return the fingerprint of a document by its id, or None if it is not in the cache."""
        fingerprint = self._new.get(id)
        return self._old.get(id) if fingerprint is None else fingerprint

    def update(self, fingerprints: Mapping[str, KeyFingerprint]) -> None:
        """Remember the fingerprint of the search keys of each document, by document id."""
        self._new.update(fingerprints)
        if len(self._new) >= self._size:
            self._old, self._new = self._new, {}


class NoFlightError(RuntimeError):
    """Raised when a caller takes a batch or its result although no batch is in flight: a bug."""


@dataclass(frozen=True, slots=True)
class Flight:
    """A batch that is being written, and the claims under which it was read."""

    batch: Batch
    claims: Claims
    claims_revision: int  # `Positions.claims_revision` when the batch was launched


class Lane:
    """A part of the claimed partitions, with their batches and a cache of stored search keys.

    `filling_batch` collects messages while the previous batch, `flight`, is being written.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.flight: Flight | None = None
        # When the last batch was launched, or when the lane got its partitions.
        self.launched_at = 0.0
        self.begin(Limits(1, 1))

    def begin(self, limits: Limits, lanes: int = 1) -> None:
        """Begin a new empty batch, and forget the fingerprints of search keys.

        Args:
            limits: The limits for all lanes together. The batch gets an equal share of them.
            lanes: How many lanes are in use.
        """
        self._limits = Limits(max(1, limits.rows // lanes), max(1, limits.bytes // lanes))
        self._fingerprints = FingerprintCache(REMEMBERED // lanes)
        self.drop()

    def drop(self) -> None:
        """Replace the batch that is being filled by an empty batch."""
        self.filling_batch = Batch(self._limits, self._fingerprints)

    @property
    def ready(self) -> bool:
        """Whether `launch` can be called."""
        return self.flight is None and bool(self.filling_batch.progress)

    def remember(self, fingerprints: Mapping[str, KeyFingerprint]) -> None:
        """Remember fingerprints of stored search keys, so that equal keys are not stored again.

        Args:
            fingerprints: The fingerprints by id of the document.
        """
        self._fingerprints.update(fingerprints)

    def launch(
        self, claims: Mapping[KafkaPartition, Claim], claims_revision: int, now: float
    ) -> Flight:
        """Stop filling the current batch, return it for writing, and begin an empty batch.

        Call this method only if `ready` is True.

        Returns:
            The batch to write, which is also in `flight` until its result is taken.
        """
        batch = self.filling_batch
        batch.arrange()
        batch_claims = {
            topic_partition: claims[topic_partition.kafka] for topic_partition in batch.progress
        }
        self.flight = Flight(batch, batch_claims, claims_revision)
        self.launched_at = now
        self.drop()
        return self.flight


def assign_lanes(partitions: Iterable[KafkaPartition], lanes: int) -> dict[KafkaPartition, int]:
    """Return the number of the lane of each partition.

    A kind can have two topics. The messages of a document have the same partition number in both
    topics, so the two partitions with this number share a lane. Apart from this, partitions go to
    the lanes in rotation.
    """
    partitions = list(partitions)
    # Partitions with the same documents are in the same group.
    groups = {
        (topic, number): (BY_TOPIC[topic].name if topic in BY_TOPIC else topic, number)
        for topic, number in partitions
    }
    group_numbers = {group: number for number, group in enumerate(sorted(set(groups.values())))}
    return {partition: group_numbers[groups[partition]] % lanes for partition in partitions}
