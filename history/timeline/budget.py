"""Limits of one answer: how large it may become, and how long a page may take.

Pages and field histories end early and say how to get the rest (docs/decisions/0017-answers.md).
What one statement may bring is READ_BYTES in history.timeline.sources.statements.
"""

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from history.diff import ValueChange
from history.documents.exactjson import dumps

# A page ends before the version that would make it larger; a single version is never too large.
PAGE_BYTES = 4 * 1024 * 1024
# A page ends at the next version when it has taken this long.
PAGE_SECONDS = 5.0
# A path filter, blame and the history of a field read BATCH versions at a time; a page ends after
# SCAN versions.
BATCH_VERSIONS = 250
SCAN_VERSIONS = 10_000
# Changes of one version, and leaves of a blame, that one answer lists.
MAX_CHANGES = 1_000
MAX_LEAVES = 5_000


class PageBudget:
    """The bytes and the seconds that one page may still use."""

    def __init__(self) -> None:
        self._bytes = PAGE_BYTES
        self._until = time.monotonic() + PAGE_SECONDS

    @property
    def is_late(self) -> bool:
        return time.monotonic() >= self._until

    def try_spend(self, size: int) -> bool:
        """Spend this many bytes and return True, or return False if they do not fit any more."""
        if size > self._bytes:
            self._bytes = 0
            return False
        self._bytes -= size
        return True


class ListedEntries(NamedTuple):
    """The number of entries of a list that are in one answer, and their size in bytes."""

    number: int  # how many entries are in the answer
    size: int  # bytes


def limit_changes(changes: Sequence[ValueChange]) -> ListedEntries:
    """Return how many of the changes one answer lists, beginning with the first."""
    first = changes[:MAX_CHANGES]
    size = len(dumps(first))  # all at once: usually they fit
    if size <= PAGE_BYTES:
        return ListedEntries(len(first), size)
    return limit_sizes(len(dumps(change)) for change in first)


def limit_sizes(sizes: Iterable[int]) -> ListedEntries:
    """Return how many entries of these sizes fit into one answer; at least one if there is any."""
    number = total = 0
    for size in sizes:
        if number and total + size > PAGE_BYTES:
            break
        number, total = number + 1, total + size
    return ListedEntries(number, total)
