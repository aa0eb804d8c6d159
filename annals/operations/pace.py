"""The rates of the last day, from what the consumer notes of the ledger, as a picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

from history.base import clock
from ingest.models import Pace

WIDTH, HEIGHT = 720, 120
DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Bar:
    """Messages per second from since to until. x, width, came_y, read_y: in the picture."""

    since: datetime
    until: datetime
    came: float
    read: float
    x: float = 0.0
    width: float = 0.0
    came_y: float = 0.0
    read_y: float = 0.0


@dataclass(frozen=True, slots=True)
class Picture:
    """most: messages per second of the highest bar. came, read: messages of the day."""

    bars: Sequence[Bar]
    most: float
    came: int
    read: int
    width: int = WIDTH
    height: int = HEIGHT


def picture() -> Picture | None:
    """None before there are two figures of the last day."""
    now = clock.now()
    noted = list(Pace.objects.filter(at__gt=now - DAY, at__lte=now).order_by("at"))
    rates = [
        Bar(one.at, two.at, max(0, two.came - one.came) / seconds, (two.read - one.read) / seconds)
        for one, two in pairwise(noted)
        if (seconds := (two.at - one.at).total_seconds()) > 0
    ]
    if not rates:
        return None
    most = max(max(bar.came, bar.read) for bar in rates)
    bars = [
        Bar(
            bar.since, bar.until, bar.came, bar.read,
            x=round(WIDTH * (1 - (now - bar.since) / DAY), 1),
            width=round(max(1, WIDTH * ((bar.until - bar.since) / DAY) - 1), 1),
            came_y=round(HEIGHT - HEIGHT * bar.came / (most or 1), 1),
            read_y=round(HEIGHT - HEIGHT * bar.read / (most or 1), 1),
        )
        for bar in rates
    ]  # fmt: skip
    came, read = noted[-1].came - noted[0].came, noted[-1].read - noted[0].read
    return Picture(bars, most, max(0, came), read)
