"""Numbers and days as arguments of commands, with their bounds."""

from argparse import ArgumentTypeError
from collections.abc import Callable
from datetime import date

MOST_ID = 2**63 - 1
MOST_PORT = 65_535
MOST_DAYS = 36_500
MOST_SECONDS = 7 * 86_400.0


def whole(low: int, high: int) -> Callable[[str], int]:
    """Reads a whole number from low to high, both included."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = None
        if number is None or not low <= number <= high:
            raise ArgumentTypeError(f"{text!r} is not a whole number from {low} to {high}")
        return number

    return read


def number(low: float, high: float) -> Callable[[str], float]:
    """Reads a number from low to high, both included."""

    def read(text: str) -> float:
        try:
            given = float(text)
        except ValueError:
            given = float("nan")
        if not low <= given <= high:  # also false for nan
            raise ArgumentTypeError(f"{text!r} is not a number from {low:g} to {high:g}")
        return given

    return read


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
