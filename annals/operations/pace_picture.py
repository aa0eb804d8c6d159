"""Draws how many messages arrived in the last 24 hours, and how many the consumers read."""

from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Final

from history.common import clock
from ingest.models import Pace

WIDTH, HEIGHT = 720, 120
DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class PacePicture:
    """The rates of 24 hours as SVG paths: arrived messages as an area, read messages as a line."""

    arrived: int  # how many messages arrived in the last 24 hours
    read: int  # how many messages were read in the last 24 hours
    highest_rate: float  # in messages a second
    arrived_path: str
    read_path: str
    width: int = WIDTH
    height: int = HEIGHT

    @property
    def before(self) -> int:
        """How many messages were read minus how many arrived in the last 24 hours; at least 0.

        At least this many of the messages that were read had arrived before the last 24 hours.
        """
        return max(0, self.read - self.arrived)


def draw_pace() -> PacePicture | None:
    """Draw how fast messages arrived and were read in the last 24 hours.

    Returns None if there are fewer than two samples from this time.
    """
    now = clock.now()
    samples = list(Pace.objects.filter(at__gt=now - DAY, at__lte=now).order_by("at"))
    rates = []
    for earlier, later in pairwise(samples):
        x, width = (
            round(WIDTH * (time / DAY), 1)
            for time in (earlier.at - now + DAY, later.at - earlier.at)
        )
        seconds = (later.at - earlier.at).total_seconds()
        arrived, read = max(0, later.came - earlier.came), later.read - earlier.read
        rates.append((x, width, arrived / seconds, read / seconds))
    if not rates:
        return None
    highest_rate = max(max(arrived, read) for *_, arrived, read in rates)
    scale = HEIGHT / (highest_rate or 1)
    return PacePicture(
        max(0, samples[-1].came - samples[0].came),
        samples[-1].read - samples[0].read,
        highest_rate,
        "".join(
            f"M{x} {HEIGHT}v{-arrived * scale:.1f}h{w}V{HEIGHT}z" for x, w, arrived, _ in rates
        ),
        "".join(f"M{x} {HEIGHT - read * scale:.1f}h{w}" for x, w, _, read in rates),
    )
