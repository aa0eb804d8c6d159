"""Finds the day of a version in a message that could not be decoded. Pure."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime

# updatedAt is searched for in the first part of a message.
SEARCHED_BYTES = 65_536
_UPDATED_AT = re.compile(rb'"updatedAt"\s*:\s*"([^"\\]{10,40})"')


def guess_day(value: bytes | None) -> date | None:
    """The UTC day of the first updatedAt in the bytes; None if there is no such time."""
    found = _UPDATED_AT.search(value or b"", 0, SEARCHED_BYTES)
    if found is None:
        return None
    try:
        moment = datetime.fromisoformat(found[1].decode("ascii"))
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).date()
    except (ValueError, OverflowError):
        return None
