"""Limits of one answer: how large it may become, and how long a page may take.

A page that reaches a limit ends early, and has a token for the rest
(docs/decisions/0017-answers.md). READ_BYTES in history.timeline.sources.statements limits what one
statement may read.
"""

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from history.diff import ValueChange
from history.documents.exactjson import dumps

# A page ends before a version that would make it larger than this. The first version of a page is
# never too large.
PAGE_BYTES = 4 * 1024 * 1024
# When a page has taken this long, it ends before the next version.
PAGE_SECONDS = 5.0
# How many versions a path filter, blame and the history of a field read at a time.
BATCH_VERSIONS = 250
# After how many examined versions a page ends, even if it is not full.
SCAN_VERSIONS = 10_000
# How many changes of one version an answer lists.
MAX_CHANGES = 1_000
# How many leaves of a blame an answer lists.
MAX_LEAVES = 5_000


class PageBudget:
    """The limits of one page: how many bytes and seconds it may still use."""

    def __init__(self) -> None:
        self._bytes = PAGE_BYTES
        self._until = time.monotonic() + PAGE_SECONDS

    @property
    def is_late(self) -> bool:
        """Whether the time limit for reading and composing the page is reached."""
        return time.monotonic() >= self._until

    def try_spend(self, size: int) -> bool:
        """Count `size` bytes and return True, or return False if the page would be too large."""
        if size > self._bytes:
            self._bytes = 0
            return False
        self._bytes -= size
        return True


class ListedEntries(NamedTuple):
    """The number and size of the first entries of a list that fit into one answer."""

    number: int  # how many entries fit
    size: int  # of these entries together, in bytes


def limit_changes(changes: Sequence[ValueChange]) -> ListedEntries:
    """Return how many of the first changes fit into one answer, and their size."""
    first = changes[:MAX_CHANGES]
    size = len(dumps(first))  # all at once: usually they fit
    if size <= PAGE_BYTES:
        return ListedEntries(len(first), size)
    return limit_sizes(len(dumps(change)) for change in first)


def limit_sizes(sizes: Iterable[int]) -> ListedEntries:
    """Return how many of the first entries of these sizes fit into one answer, and their size.

    The first entry always fits.
    """
    number = total = 0
    for size in sizes:
        if number and total + size > PAGE_BYTES:
            break
        number, total = number + 1, total + size
    return ListedEntries(number, total)
