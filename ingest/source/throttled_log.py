"""A log that repeats itself, thinned out."""

from __future__ import annotations

import logging
import re
import time

EVERY_SECONDS = 10.0
_NUMBERS = re.compile(r"\d+")


class ThrottledLog(logging.Filter):
    """Lets a message through once in a while; messages that differ in numbers only are the same."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        text = _NUMBERS.sub("#", record.getMessage())
        now = time.monotonic()
        if now - self._said.get(text, -EVERY_SECONDS) < EVERY_SECONDS:
            return False
        if len(self._said) >= 1_000:
            self._said.clear()
        self._said[text] = now
        return True
