"""When unread messages are lost and how long catching up takes, by the figures of the ledger."""

import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf, isfinite

from history.common.answer_types import Answer, Count, Seconds
from history.common.consumer_silence import SILENT
from history.common.text_tables import pluralize
from ingest.kafka.retention_forecast import (
    ASSUMED_RATE,
    Backlog,
    Outlook,
    SeenEnd,
    compute_catch_up,
)
from ingest.messages.message import KafkaPartition
from ingest.models import Ledger

# As in the alert AnnalsLossNear.
NEAR_SECONDS = 7_200.0
UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


@dataclass(frozen=True, slots=True)
class LossForecast:
    """The forecast of one topic partition.

    Attributes:
        seconds: Until the broker deletes its oldest unread message; inf for never.
        catch_up: Seconds until it is read to its end if a consumer begins now; inf for never.
        kept: For how many seconds a new message is kept.
        unread: The number of unread messages.
        halted: Whether its consumer has stopped reading.
    """

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


def forecast_losses(
    entries: Sequence[Ledger],
    never_read: Mapping[KafkaPartition, Outlook] | None = None,
    now: datetime | None = None,
) -> dict[KafkaPartition, LossForecast]:
    """Return the forecast of each topic partition, the most endangered first.

    Retired topics and earlier topics of the same name are left out. Messages that arrived since
    the last known end are added at the rate of that time.

    Args:
        entries: The ledger rows.
        never_read: The answers of the brokers about partitions that are not in the ledger.
        now: The moment of the forecast, by default the clock.
    """
    # The brokers' clock, which no test moves.
    moment = now or datetime.fromtimestamp(time.time(), UTC)
    backlogs: dict[KafkaPartition, Backlog] = {}
    halted: set[KafkaPartition] = set()
    for entry in entries:
        if entry.current and not entry.retired and entry.forecast_at is not None:
            arriving = entry.arriving_rate or 0.0
            age = (moment - (entry.end_known_at or entry.forecast_at)).total_seconds()
            arrived = arriving * age if age > SILENT.total_seconds() else 0.0
            seconds = inf
            if entry.loss_at is not None:
                seconds = max(0.0, (entry.loss_at - moment).total_seconds())
            kept_seconds = inf if entry.kept_seconds is None else entry.kept_seconds
            unread = (entry.lag or 0) + int(arrived)
            backlogs[entry.topic, entry.partition] = Backlog(
                unread, arriving, seconds, kept_seconds
            )
            if entry.halted_at is not None:
                halted.add((entry.topic, entry.partition))
    for place, outlook in (never_read or {}).items():
        forecast = outlook.forecast
        if forecast is not None:
            seconds = inf if forecast.at is None else max(0.0, forecast.at - moment.timestamp())
            kept_seconds = inf if forecast.kept is None else forecast.kept
            backlogs[place] = Backlog(forecast.unread, outlook.log.arriving, seconds, kept_seconds)
    read = {place: backlog for place, backlog in backlogs.items() if place not in halted}
    catch_up_seconds = compute_catch_up(read, get_reading_rate(entries))
    catch_up_seconds |= {place: inf if backlogs[place].unread else 0.0 for place in halted}
    ordered = sorted(backlogs.items(), key=lambda item: item[1].seconds)
    return {
        place: LossForecast(
            seconds=backlog.seconds,
            catch_up=catch_up_seconds[place],
            kept=backlog.kept,
            unread=backlog.unread,
            halted=place in halted,
        )
        for place, backlog in ordered
    }


def describe_deleted(
    outlooks: Mapping[KafkaPartition, Outlook], retired: Container[str]
) -> list[str]:
    """Return a sentence for each topic partition with unread messages that the broker deleted."""
    return [
        f"{topic}[{partition}]: the broker has deleted "
        + pluralize(
            outlook.forecast.deleted, "message that was not read", "messages that were not read"
        )
        for (topic, partition), outlook in sorted(outlooks.items())
        if outlook.forecast is not None and outlook.forecast.deleted and topic not in retired
    ]


class LossEntry(Answer, kw_only=True):
    """The forecast of one topic partition in an answer; null stands for never."""

    topic: str
    partition: Count
    unread: Count
    loss_seconds: Seconds | None
    catch_up_seconds: Seconds | None
    kept_seconds: Seconds | None


def list_losses(losses: Mapping[KafkaPartition, LossForecast]) -> list[LossEntry]:
    """Return the forecasts as entries of an answer."""
    return [
        LossEntry(
            topic=topic,
            partition=partition,
            unread=loss.unread,
            loss_seconds=_finite(loss.seconds),
            catch_up_seconds=_finite(loss.catch_up),
            kept_seconds=_finite(loss.kept),
        )
        for (topic, partition), loss in losses.items()
    ]


def format_duration(seconds: float, translate: Callable[[str], str] = str) -> str:
    """Write a duration in two units, rounded down: "2 h 10 min".

    `translate` translates d, h, min and s.
    """
    remaining = int(seconds)
    words: list[str] = []
    for unit, size in UNITS:
        count, remaining = divmod(remaining, size)
        if count or words or unit == "s":
            words.append(f"{count} {translate(unit)}")
    return " ".join(words[:2])


def get_reading_rate(entries: Sequence[Ledger]) -> float:
    """Return the messages per second of the fastest consumer, measured while it was behind."""
    rates = [entry.reading_rate for entry in entries if entry.reading_rate]
    return max(rates, default=ASSUMED_RATE)


def collect_seen_ends(entries: Sequence[Ledger]) -> dict[KafkaPartition, SeenEnd]:
    """Return the end of each topic partition when a consumer last saw it."""
    return {
        (entry.topic, entry.partition): SeenEnd(
            entry.end_known_at.timestamp(),
            entry.high_watermark,
            entry.arriving_rate or 0.0,
        )
        for entry in entries
        if entry.current and entry.end_known_at is not None and entry.high_watermark is not None
    }


def update_entries(entries: Sequence[Ledger], outlooks: Mapping[KafkaPartition, Outlook]) -> None:
    """Put the current answers of the brokers into the entries, without saving them."""
    for entry in entries:
        outlook = outlooks.get((entry.topic, entry.partition))
        if outlook is None or not entry.current:
            continue
        moment, forecast = datetime.fromtimestamp(outlook.log.at, UTC), outlook.forecast
        entry.high_watermark, entry.end_known_at = outlook.log.end, moment
        entry.arriving_rate = outlook.log.arriving
        entry.forecast_at = None if forecast is None else moment
        if forecast is not None:
            entry.loss_at = (
                None if forecast.at is None else datetime.fromtimestamp(forecast.at, UTC)
            )
            entry.kept_seconds = forecast.kept


def _finite(seconds: float) -> float | None:
    return round(seconds, 1) if isfinite(seconds) else None
