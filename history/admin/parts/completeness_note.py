"""What a reader has to know of how complete a page is."""

from dataclasses import dataclass
from datetime import datetime
from typing import Self

from history.complete_to import Completeness

LATE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class CompletenessNote:
    """late: messages have been unread for longer than LATE_SECONDS."""

    complete_to: datetime | None
    retention_start: datetime
    halted: bool
    late: bool

    @classmethod
    def of(cls, found: Completeness) -> Self:
        lag = found.lag_seconds
        late = bool(found.lag_messages) and (lag is None or lag > LATE_SECONDS)
        return cls(found.complete_to, found.retention_start, found.halted, late)
