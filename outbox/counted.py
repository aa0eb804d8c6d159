"""A number and its noun, in what commands and checks print."""

from __future__ import annotations


def counted(count: int, one: str, several: str = "") -> str:
    """`1 document`, `1,234 documents`. several: the words for another number than 1, if not
    one + s."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"
