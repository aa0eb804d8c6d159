"""Throttles a log that repeats itself."""

from __future__ import annotations

import logging
import re
import time

EVERY_SECONDS = 10.0
_NUMBERS = re.compile(r"\d+")


class ThrottledLog(logging.Filter):
    """Passes a message once in EVERY_SECONDS; messages that differ only in numbers are the same."""

    def __init__(self) -> None:
        super().__init__()
        self._passed: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        text = _NUMBERS.sub("#", record.getMessage())
        now = time.monotonic()
        if now - self._passed.get(text, -EVERY_SECONDS) < EVERY_SECONDS:
            return False
        if len(self._passed) >= 1_000:
            self._passed.clear()
        self._passed[text] = now
        return True
