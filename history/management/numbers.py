"""Numbers, sizes and days as arguments of commands, with their bounds."""

import re
from argparse import ArgumentTypeError
from collections.abc import Callable
from datetime import date

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
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


def in_bytes(text: str) -> int:
    """Bytes from `500G`, `2T`, `2TiB` or a plain number."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGTP]?)(?:iB|B)?", text, re.IGNORECASE)
    if found is None:
        raise ArgumentTypeError(f"{text!r} is not a size; write 500G or 2T")
    return int(float(found[1]) * UNITS[found[2].upper()])
