"""Numbers and days as arguments of commands, with their bounds."""

from argparse import ArgumentTypeError
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from functools import partial
from typing import TypeVar

MOST_ID = 2**63 - 1
MOST_PORT = 65_535
MOST_DAYS = 36_500
MOST_SECONDS = 7 * 86_400.0


N = TypeVar("N", int, float)


def whole(low: int, high: int) -> Callable[[str], int]:
    """Reads a whole number from low to high, both included."""
    return partial(_read, int, "whole number", low, high)


def number(low: float, high: float) -> Callable[[str], float]:
    """Reads a number from low to high, both included."""
    return partial(_read, float, "number", low, high)


def _read(kind: type[N], name: str, low: N, high: N, text: str) -> N:
    with suppress(ValueError):
        given = kind(text)
        if low <= given <= high:  # false for nan
            return given
    raise ArgumentTypeError(f"{text!r} is not a {name} from {low:n} to {high:n}")


def day(text: str) -> date:
    """Reads a day, as 2026-12-31."""
    try:
        found = date.fromisoformat(text)
    except ValueError:
        found = None
    # Python also reads other forms of ISO 8601. The end of the last day of all is no day.
    if found is None or len(text) != len("2026-12-31") or found == date.max:
        raise ArgumentTypeError(f"{text!r} is not a day as 2026-12-31")
    return found
