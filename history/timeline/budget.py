"""How large an answer may become, and how long a page may take: pages._fill and values._scan end
early and say how to get the rest (docs/decisions/0017-answers.md). What one statement may bring is
READ_BYTES in history.timeline.sources.statements."""

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from history.diff import Change
from history.documents.exactjson import dumps

# A page ends before the version that would make it larger; a single version is never too large.
PAGE_BYTES = 4 * 1024 * 1024
# A page ends at the next version when it has taken this long.
PAGE_SECONDS = 5.0
# A path filter, blame and the history of a field read BATCH versions at a time; a page ends after
# SCAN versions.
BATCH = 250
SCAN = 10_000
# Changes of one version, and leaves of a blame, that one answer lists.
MOST_CHANGES = 1_000
MOST_LEAVES = 5_000


class Budget:
    """What is left of one page."""

    def __init__(self) -> None:
        self._bytes = PAGE_BYTES
        self._until = time.monotonic() + PAGE_SECONDS

    @property
    def late(self) -> bool:
        return time.monotonic() >= self._until

    def takes(self, size: int) -> bool:
        """Whether something of this many bytes still fits; then they are spent."""
        if size > self._bytes:
            self._bytes = 0
            return False
        self._bytes -= size
        return True


class Listed(NamedTuple):
    """How many entries of a list are in one answer, and their size in bytes."""

    number: int
    size: int


def listed(changes: Sequence[Change]) -> Listed:
    """How many of these changes, from the first one on, one answer lists."""
    first = changes[:MOST_CHANGES]
    size = len(dumps(first))  # all at once: usually they fit
    if size <= PAGE_BYTES:
        return Listed(len(first), size)
    return fitting(len(dumps(change)) for change in first)


def fitting(sizes: Iterable[int]) -> Listed:
    """How many entries of these sizes, from the first one on, one answer takes; at least one if
    there is any."""
    number = total = 0
    for size in sizes:
        if number and total + size > PAGE_BYTES:
            break
        number, total = number + 1, total + size
    return Listed(number, total)
