"""A number and its noun, in what commands print. The screens have ngettext."""

from __future__ import annotations


def counted(count: int, one: str, several: str = "") -> str:
    """`1 day`, `1,234 days`. several: the words for another number than 1, if not one + s."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"
