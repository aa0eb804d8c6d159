"""Parses the numbers and days in the arguments of commands, and checks their bounds."""

from argparse import ArgumentTypeError
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from functools import partial
from typing import TypeVar

MAX_ID = 2**63 - 1
MAX_PORT = 65_535
MAX_DAYS = 36_500
MAX_SECONDS = 7 * 86_400.0


N = TypeVar("N", int, float)


def make_whole_parser(low: int, high: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from `low` to `high`, both included."""
    return partial(_parse_number, int, "whole number", low, high)


def make_number_parser(low: float, high: float) -> Callable[[str], float]:
    """Return a parser of numbers from `low` to `high`, both included."""
    return partial(_parse_number, float, "number", low, high)


def _parse_number(kind: type[N], name: str, low: N, high: N, text: str) -> N:
    with suppress(ValueError):
        value = kind(text)
        if low <= value <= high:  # false for nan
            return value
    raise ArgumentTypeError(f"{text!r} is not a {name} from {low:n} to {high:n}")


def parse_day(text: str) -> date:
    """Parse a day in the form 2026-12-31.

    Raises:
        ArgumentTypeError: The text does not have this form, or is 9999-12-31.
    """
    try:
        parsed = date.fromisoformat(text)
    except ValueError:
        parsed = None
    # Python also reads other forms of ISO 8601. date.max does not have a following day.
    if parsed is None or len(text) != len("2026-12-31") or parsed == date.max:
        raise ArgumentTypeError(f"{text!r} is not a day in the form 2026-12-31")
    return parsed
