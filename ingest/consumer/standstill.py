"""Notices that Kafka delivers nothing although it has more. Pure: times are passed in, as seconds
of one clock."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ingest.source.message import KafkaPartition


class Standstill:
    """seconds: how long nothing may come. After each time that this was noticed the wait is twice
    as long, until something comes: where the brokers hold messages back, a new client does not
    help either."""

    def __init__(self, seconds: float) -> None:
        self._seconds = self._wait = seconds
        self._positions: Mapping[KafkaPartition, int] = {}
        self._since: float | None = None

    def noticed(
        self,
        now: float,
        positions: Mapping[KafkaPartition, int],
        behind: Collection[KafkaPartition],
    ) -> bool:
        """Whether the client should be replaced: for the whole wait there were partitions that may
        be read and that have more, and no position moved.

        positions: the next offset of each partition. behind: those of which the brokers have more
        than was delivered.
        """
        moved = any(self._positions.get(each, at) != at for each, at in positions.items())
        self._positions = dict(positions)
        if moved:
            self._wait = self._seconds
        if moved or not behind:
            self._since = None
        elif self._since is None:
            self._since = now
        elif now - self._since >= self._wait:
            self._since = None
            self._wait *= 2
            return True
        return False
