"""Which hits of a search were on earlier pages. The page token has a mark of 4 bytes for each.

Hits are in the order of their last change, and every version that arrives can move one of them. So
no place in that order says what was shown.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import count

from history.timeline.hits import Hit

MARK = 4


@dataclass(frozen=True, slots=True)
class Shown:
    """The marks of the hits on earlier pages. salt: all hits of the first page's moment have
    different marks with it, so that none of them can be taken for another."""

    salt: int
    marks: frozenset[bytes] = frozenset()

    def __contains__(self, hit: Hit) -> bool:
        return _mark(hit, self.salt) in self.marks

    def and_also(self, hits: Iterable[Hit]) -> Shown:
        return replace(self, marks=self.marks | {_mark(hit, self.salt) for hit in hits})

    def packed(self) -> tuple[int, str]:
        """As values of a page token."""
        return self.salt, b64encode(b"".join(sorted(self.marks))).decode()


def nothing(hits: Sequence[Hit]) -> Shown:
    """The state before the first page of these hits."""
    return Shown(next(salt for salt in count() if _distinct(hits, salt)))


def unpacked(salt: int, marks: str) -> Shown:
    """The reverse of packed()."""
    joined = b64decode(marks)
    return Shown(salt, frozenset(joined[at : at + MARK] for at in range(0, len(joined), MARK)))


def _distinct(hits: Sequence[Hit], salt: int) -> bool:
    return len({_mark(hit, salt) for hit in hits}) == len(hits)


def _mark(hit: Hit, salt: int) -> bytes:
    named = f"{salt} {hit.entity.name} {hit.id}"
    return blake2b(named.encode(), digest_size=MARK).digest()
