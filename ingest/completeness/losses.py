"""When unread messages are lost and how long catching up takes, from the ledger's figures."""

import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf, isfinite
from typing import Any

from history.base.silence import SILENT
from history.base.table import counted
from ingest.forecast import ASSUMED_RATE, Backlog, Outlook, Seen, catch_up
from ingest.models import Ledger
from ingest.source.message import KafkaPartition

# As in the alert AnnalsLossNear.
NEAR_SECONDS = 7_200.0
UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


@dataclass(frozen=True, slots=True)
class Loss:
    """One topic partition. seconds: until the broker deletes its oldest unread message; inf for
    never. catch_up: seconds until it is read to its end if a consumer begins now; inf if never.
    kept: for how many seconds a message that comes now is kept. unread: messages."""

    seconds: float
    catch_up: float
    kept: float
    unread: int
    halted: bool = False

    @property
    def ends(self) -> bool:
        """Whether catching up ends."""
        return self.catch_up < inf

    @property
    def pressing(self) -> bool:
        """Whether to act now, as AnnalsLossNear and AnnalsCatchUpTooSlow ask."""
        near = self.seconds < min(NEAR_SECONDS, self.kept / 2)
        return near or self.catch_up > self.seconds

    @property
    def begun(self) -> bool:
        """Whether what is not read is past its retention. The broker deletes it minutes later."""
        return self.seconds == 0


def losses(
    entries: Sequence[Ledger],
    never_read: Mapping[KafkaPartition, Outlook] | None = None,
    now: datetime | None = None,
) -> dict[KafkaPartition, Loss]:
    """The partitions with a forecast, the most endangered first; without retired topics and earlier
    topics of the same name. never_read: what the brokers answered about partitions that are not in
    the ledger. What came since the last known end is added at the rate of then."""
    # The brokers' clock, which no test moves.
    moment = now or datetime.fromtimestamp(time.time(), UTC)
    backlogs: dict[KafkaPartition, Backlog] = {}
    halted: set[KafkaPartition] = set()
    for entry in entries:
        if entry.current and not entry.retired and entry.forecast_at is not None:
            arriving = entry.arriving_rate or 0.0
            age = (moment - (entry.end_known_at or entry.forecast_at)).total_seconds()
            came = arriving * age if age > SILENT.total_seconds() else 0.0
            seconds = inf
            if entry.loss_at is not None:
                seconds = max(0.0, (entry.loss_at - moment).total_seconds())
            kept = inf if entry.kept_seconds is None else entry.kept_seconds
            unread = (entry.lag or 0) + int(came)
            backlogs[entry.topic, entry.partition] = Backlog(unread, arriving, seconds, kept)
            if entry.halted_at is not None:
                halted.add((entry.topic, entry.partition))
    for place, found in (never_read or {}).items():
        said = found.forecast
        if said is not None:
            seconds = inf if said.at is None else max(0.0, said.at - moment.timestamp())
            kept = inf if said.kept is None else said.kept
            backlogs[place] = Backlog(said.unread, found.log.arriving, seconds, kept)
    read = {place: each for place, each in backlogs.items() if place not in halted}
    took = catch_up(read, reading_rate(entries))
    took |= {place: inf if backlogs[place].unread else 0.0 for place in halted}
    ordered = sorted(backlogs.items(), key=lambda item: item[1].seconds)
    return {
        place: Loss(
            seconds=each.seconds,
            catch_up=took[place],
            kept=each.kept,
            unread=each.unread,
            halted=place in halted,
        )
        for place, each in ordered
    }


def deleted(outlooks: Mapping[KafkaPartition, Outlook], retired: Container[str]) -> list[str]:
    """A sentence for each partition of which the broker has deleted unread messages already."""
    return [
        f"{topic}[{partition}]: the broker has deleted "
        + counted(each.forecast.deleted, "message that was not read", "messages that were not read")
        for (topic, partition), each in sorted(outlooks.items())
        if each.forecast is not None and each.forecast.deleted and topic not in retired
    ]


def as_json(found: Mapping[KafkaPartition, Loss]) -> list[dict[str, Any]]:
    """The same as JSON values; null for what never happens."""
    return [
        {
            "topic": topic,
            "partition": partition,
            "unread": each.unread,
            "lossSeconds": _finite(each.seconds),
            "catchUpSeconds": _finite(each.catch_up),
            "keptSeconds": _finite(each.kept),
        }
        for (topic, partition), each in found.items()
    ]


def in_words(seconds: float, name: Callable[[str], str] = str) -> str:
    """A time in two units, rounded down: "2 h 10 min". name: translates d, h, min and s."""
    left = int(seconds)
    words: list[str] = []
    for unit, size in UNITS:
        count, left = divmod(left, size)
        if count or words or unit == "s":
            words.append(f"{count} {name(unit)}")
    return " ".join(words[:2])


def reading_rate(entries: Sequence[Ledger]) -> float:
    """Messages per second of the fastest consumer, as measured when it was behind."""
    known = [entry.reading_rate for entry in entries if entry.reading_rate]
    return max(known, default=ASSUMED_RATE)


def seen(entries: Sequence[Ledger]) -> dict[KafkaPartition, Seen]:
    """The end of each partition when a consumer saw it last."""
    return {
        (entry.topic, entry.partition): Seen(
            entry.end_known_at.timestamp(),
            entry.high_watermark,
            entry.arriving_rate or 0.0,
        )
        for entry in entries
        if entry.current and entry.end_known_at is not None and entry.high_watermark is not None
    }


def take(entries: Sequence[Ledger], outlooks: Mapping[KafkaPartition, Outlook]) -> None:
    """Put what the brokers answered just now into the entries, which are not saved."""
    for entry in entries:
        found = outlooks.get((entry.topic, entry.partition))
        if found is None or not entry.current:
            continue
        at, said = datetime.fromtimestamp(found.log.at, UTC), found.forecast
        entry.high_watermark, entry.end_known_at = found.log.end, at
        entry.arriving_rate = found.log.arriving
        entry.forecast_at = None if said is None else at
        if said is not None:
            entry.loss_at = None if said.at is None else datetime.fromtimestamp(said.at, UTC)
            entry.kept_seconds = said.kept


def _finite(seconds: float) -> float | None:
    return round(seconds, 1) if isfinite(seconds) else None
