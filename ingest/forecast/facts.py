"""What a forecast is made of: how a topic is kept, and one of its partitions at one moment. Pure.

Times are seconds since 1970. A position in a log may be a fraction: it is computed from bytes.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Retention:
    """How the brokers keep a topic, from its configuration.

    seconds, bytes: the limits, None for none. segment_seconds, segment_bytes: when the brokers
    close a segment; they delete whole segments only. deletes: False if only compaction removes
    messages; compacts: it does (also).
    """

    seconds: float | None
    bytes: int | None
    segment_seconds: float
    segment_bytes: int
    deletes: bool = True
    compacts: bool = False

    @classmethod
    def of(cls, configuration: dict[str, str]) -> Retention | None:
        """From the names and values that a broker answers, the broker's defaults among them. None
        if it does not give them: some brokers answer only what was set for the topic."""
        try:
            policies = configuration["cleanup.policy"].replace(" ", "").split(",")
            seconds = int(configuration["retention.ms"]) / 1000
            size = int(configuration["retention.bytes"])
            segment_seconds = int(configuration["segment.ms"]) / 1000
            segment_bytes = int(configuration["segment.bytes"])
        except (KeyError, ValueError):
            return None
        return cls(
            seconds if seconds >= 0 else None,
            size if size >= 0 else None,
            segment_seconds,
            segment_bytes,
            "delete" in policies,
            "compact" in policies,
        )


@dataclass(frozen=True, slots=True)
class Log:
    """One partition at the broker at the moment `at`. start, end: its first offset and the one
    after its last. arriving: offsets per second. message_bytes: bytes on disk for each offset, None
    if not known."""

    at: float
    start: int
    end: int
    arriving: float
    message_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class Unread:
    """From which offset on a partition is not read, with the times of the messages around it.

    oldest_at: of the message at `next`. start_at: of the first message of the log. segment_at: of
    the last message in the segment of `next`, if that is full already. None: not known, or there
    is no such message. A producer may set these times, and retention.ms counts from them.
    """

    next: int
    oldest_at: float | None = None
    start_at: float | None = None
    segment_at: float | None = None
