"""The rates of the last day, from what the consumer notes of the ledger, as a picture."""

from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Final

from history.base import clock
from ingest.models import Pace

WIDTH, HEIGHT = 720, 120
DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Picture:
    """came, read: messages of the day; most: in a second. came_path, read_path: of an SVG: an area
    from the ground, and lines."""

    came: int
    read: int
    most: float
    came_path: str
    read_path: str
    width: int = WIDTH
    height: int = HEIGHT

    @property
    def before(self) -> int:
        """How many more were read than came: they had come before that day."""
        return max(0, self.read - self.came)


def picture() -> Picture | None:
    """None before there are two figures of the last day."""
    now = clock.now()
    noted = list(Pace.objects.filter(at__gt=now - DAY, at__lte=now).order_by("at"))
    rates = []
    for one, two in pairwise(noted):
        x, width = (
            round(WIDTH * (each / DAY), 1) for each in (one.at - now + DAY, two.at - one.at)
        )
        seconds = (two.at - one.at).total_seconds()
        came, read = max(0, two.came - one.came), two.read - one.read
        rates.append((x, width, came / seconds, read / seconds))
    if not rates:
        return None
    most = max(max(came, read) for *_, came, read in rates)
    scale = HEIGHT / (most or 1)
    return Picture(
        max(0, noted[-1].came - noted[0].came),
        noted[-1].read - noted[0].read,
        most,
        "".join(f"M{x} {HEIGHT}v{-came * scale:.1f}h{w}V{HEIGHT}z" for x, w, came, _ in rates),
        "".join(f"M{x} {HEIGHT - read * scale:.1f}h{w}" for x, w, _, read in rates),
    )
