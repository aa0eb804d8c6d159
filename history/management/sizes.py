"""Sizes as arguments of commands."""

from __future__ import annotations

import argparse
import re

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}


def in_bytes(text: str) -> int:
    """Bytes from `500G`, `2T`, `2TiB` or a plain number."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGTP]?)(?:iB|B)?", text, re.IGNORECASE)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write 500G or 2T")
    return int(float(found[1]) * UNITS[found[2].upper()])
