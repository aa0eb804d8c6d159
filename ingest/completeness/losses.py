"""Forecasts when the broker deletes unread messages, and how long a consumer needs to catch up.

Both are computed from the ledger.

Begin with `forecast_losses`.
"""

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
    LogForecast,
    SeenEnd,
    compute_catch_up,
)
from ingest.messages.message import KafkaPartition
from ingest.models import Ledger

# The limit of the alert AnnalsLossNear.
NEAR_SECONDS = 7_200.0


@dataclass(frozen=True, slots=True)
class LossForecast:
    """A forecast of when the broker deletes unread messages of one topic partition.

    Attributes:
        loss_seconds: The time until the broker deletes the oldest unread message; inf if the broker
            keeps it without a limit.
        catch_up_seconds: The time that a consumer needs from now on to read the topic partition
            to its end; inf if the consumer never catches up.
        kept_seconds: How long the broker keeps a new message; inf without a limit.
        unread: The number of unread messages.
        is_halted: Whether the consumer has stopped reading the topic partition.
    """

    loss_seconds: float
    catch_up_seconds: float
    kept_seconds: float
    unread: int
    is_halted: bool = False

    @property
    def catches_up(self) -> bool:
        """Whether a consumer will reach the end of the topic partition, by this forecast."""
        return self.catch_up_seconds < inf

    @property
    def is_urgent(self) -> bool:
        """Whether the alert AnnalsLossNear or AnnalsCatchUpTooSlow is raised."""
        is_near = self.loss_seconds < min(NEAR_SECONDS, self.kept_seconds / 2)
        return is_near or self.catch_up_seconds > self.loss_seconds

    @property
    def is_losing(self) -> bool:
        """Whether unread messages are past their retention, so the broker may delete them now."""
        return self.loss_seconds == 0


def forecast_losses(
    entries: Sequence[Ledger],
    never_read: Mapping[KafkaPartition, LogForecast] | None = None,
    now: datetime | None = None,
) -> dict[KafkaPartition, LossForecast]:
    """Return the forecast of each topic partition, the most endangered first.

    Retired topics are left out. Of topics with the same name, only the newest is included. If an
    end offset is older than SILENT, the messages that arrived since then are estimated.

    Args:
        entries: The ledger rows.
        never_read: The logs and forecasts of topic partitions that are not in the ledger.
        now: The moment of the forecast; None for the moment of the call.
    """
    # Not clock.now(): the moments to compare with come from the brokers' real clock.
    moment = now or datetime.fromtimestamp(time.time(), UTC)
    backlogs: dict[KafkaPartition, Backlog] = {}
    halted: set[KafkaPartition] = set()
    for entry in entries:
        if entry.current and not entry.retired and entry.forecast_at is not None:
            backlogs[entry.topic, entry.partition] = _estimate_backlog(entry, moment)
            if entry.halted_at is not None:
                halted.add((entry.topic, entry.partition))
    for partition, log_forecast in (never_read or {}).items():
        forecast = log_forecast.forecast
        if forecast is not None:
            backlogs[partition] = Backlog(
                unread=forecast.unread,
                arriving=log_forecast.log.arriving,
                loss_seconds=inf
                if forecast.at is None
                else max(0.0, forecast.at - moment.timestamp()),
                kept_seconds=inf if forecast.kept_seconds is None else forecast.kept_seconds,
            )
    running = {name: backlog for name, backlog in backlogs.items() if name not in halted}
    catch_up_seconds = compute_catch_up(running, get_reading_rate(entries))
    catch_up_seconds |= {name: inf if backlogs[name].unread else 0.0 for name in halted}
    ordered = sorted(backlogs.items(), key=lambda item: item[1].loss_seconds)
    return {
        partition: LossForecast(
            loss_seconds=backlog.loss_seconds,
            catch_up_seconds=catch_up_seconds[partition],
            kept_seconds=backlog.kept_seconds,
            unread=backlog.unread,
            is_halted=partition in halted,
        )
        for partition, backlog in ordered
    }


def _estimate_backlog(entry: Ledger, moment: datetime) -> Backlog:
    """Return the backlog of a ledger row at `moment`.

    If its end offset is older than SILENT, the messages that arrived since then are estimated from
    the arrival rate.
    """
    arriving = entry.arriving_rate or 0.0
    end_known_at = entry.end_known_at or entry.forecast_at or moment
    age = (moment - end_known_at).total_seconds()
    arrived = arriving * age if age > SILENT.total_seconds() else 0.0
    loss_seconds = inf
    if entry.loss_at is not None:
        loss_seconds = max(0.0, (entry.loss_at - moment).total_seconds())
    return Backlog(
        unread=(entry.lag or 0) + int(arrived),
        arriving=arriving,
        loss_seconds=loss_seconds,
        kept_seconds=inf if entry.kept_seconds is None else entry.kept_seconds,
    )


def describe_deleted(
    log_forecasts: Mapping[KafkaPartition, LogForecast], retired: Container[str]
) -> list[str]:
    """Return a sentence for each topic partition in which the broker deleted unread messages.

    Args:
        retired: The retired topics, which are left out.
    """
    return [
        f"{topic}[{partition}]: the broker has deleted "
        + pluralize(
            log_forecast.forecast.deleted,
            "message that was not read",
            "messages that were not read",
        )
        for (topic, partition), log_forecast in sorted(log_forecasts.items())
        if log_forecast.forecast is not None
        and log_forecast.forecast.deleted
        and topic not in retired
    ]


class LossEntry(Answer, kw_only=True):
    """The forecast of one topic partition, as the API returns it: when unread messages are deleted.

    A null in place of seconds means that the event never comes.
    """

    topic: str
    partition: Count
    unread: Count
    loss_seconds: Seconds | None  # until the broker deletes the oldest unread message
    catch_up_seconds: Seconds | None  # until a consumer has read the topic partition to its end
    kept_seconds: Seconds | None  # until the broker deletes a message that arrives now


def list_losses(losses: Mapping[KafkaPartition, LossForecast]) -> list[LossEntry]:
    """Return the forecasts in the form in which the API returns them."""
    return [
        LossEntry(
            topic=topic,
            partition=partition,
            unread=loss.unread,
            loss_seconds=_round_finite(loss.loss_seconds),
            catch_up_seconds=_round_finite(loss.catch_up_seconds),
            kept_seconds=_round_finite(loss.kept_seconds),
        )
        for (topic, partition), loss in losses.items()
    ]


def _round_finite(seconds: float) -> float | None:
    return round(seconds, 1) if isfinite(seconds) else None


_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def format_duration(seconds: float, translate: Callable[[str], str] = str) -> str:
    """Return a duration in at most two units, rounded down: "2 h 10 min".

    Args:
        translate: Translates the names of the units: d, h, min and s.
    """
    remaining = int(seconds)
    words: list[str] = []
    for unit, size in _UNITS:
        count, remaining = divmod(remaining, size)
        if count or words or unit == "s":
            words.append(f"{count} {translate(unit)}")
    return " ".join(words[:2])


def get_reading_rate(entries: Sequence[Ledger]) -> float:
    """Return how many messages a consumer can read in a second.

    This is the highest rate in the ledger, or ASSUMED_RATE if no rate was measured.
    """
    rates = [entry.reading_rate for entry in entries if entry.reading_rate]
    return max(rates, default=ASSUMED_RATE)


def collect_seen_ends(entries: Sequence[Ledger]) -> dict[KafkaPartition, SeenEnd]:
    """Return the end offset of each topic partition as a consumer last saw it."""
    return {
        (entry.topic, entry.partition): SeenEnd(
            entry.end_known_at.timestamp(),
            entry.high_watermark,
            entry.arriving_rate or 0.0,
        )
        for entry in entries
        if entry.current and entry.end_known_at is not None and entry.high_watermark is not None
    }


def update_entries(
    entries: Sequence[Ledger], log_forecasts: Mapping[KafkaPartition, LogForecast]
) -> None:
    """Set end offset, arrival rate and forecast of ledger rows from the brokers' answers.

    The rows are changed in memory only.
    """
    for entry in entries:
        log_forecast = log_forecasts.get((entry.topic, entry.partition))
        if log_forecast is None or not entry.current:
            continue
        moment, forecast = datetime.fromtimestamp(log_forecast.log.at, UTC), log_forecast.forecast
        entry.high_watermark, entry.end_known_at = log_forecast.log.end, moment
        entry.arriving_rate = log_forecast.log.arriving
        entry.forecast_at = None if forecast is None else moment
        if forecast is not None:
            entry.loss_at = (
                None if forecast.at is None else datetime.fromtimestamp(forecast.at, UTC)
            )
            entry.kept_seconds = forecast.kept_seconds
