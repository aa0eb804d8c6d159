"""When the servers were restarted."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

# How long after a restart its traces are expected: the processes try again with growing pauses.
AFTER = timedelta(seconds=90)


@dataclass
class Restarts:
    """The name of each server that was restarted, when that began and when it was there again."""

    times: list[tuple[str, datetime, datetime]] = field(default_factory=list)

    def during(self, name: str, moment: datetime) -> bool:
        return any(
            name == each and begin <= moment <= end + AFTER for each, begin, end in self.times
        )
