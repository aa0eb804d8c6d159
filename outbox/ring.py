"""The day partitions of sent versions: a ring of tables that are emptied by TRUNCATE.

A day has the table number `day % SLOTS`, so the table for tomorrow always exists.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

SLOTS = 32
# A table must be empty before its number comes again; two days are left to empty it.
MOST_DAYS = SLOTS - 4
_SECONDS = 86_400

# SQL: the number of the table for a recorded_at. Rounded down, as _day() does.
SLOT = f"mod(floor(extract(epoch FROM recorded_at) / {_SECONDS})::bigint, {SLOTS})"


def table(slot: int, of: str = "outbox_message") -> str:
    """The name of a table of a ring."""
    return f"{of}_{slot:02}"


def slots(oldest: datetime, newest: datetime) -> list[int]:
    """The tables that hold what was recorded between two moments, both included."""
    first, last = _day(oldest), _day(newest)
    return sorted({day % SLOTS for day in range(first, min(last, first + SLOTS - 1) + 1)})


def expired(now: datetime, keep_days: int) -> Iterable[int]:
    """The tables whose newest day is over for more than keep_days; not the one for tomorrow."""
    today = _day(now)
    return [(today - age) % SLOTS for age in range(keep_days + 1, SLOTS - 1)]


def _day(moment: datetime) -> int:
    return int(moment.astimezone(UTC).timestamp() // _SECONDS)
