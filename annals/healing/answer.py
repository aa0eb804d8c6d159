"""What an outbox answers: believed as a whole, or not at all. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec

from history.fallback import WrongAnswerError

# First and last, both included.
Range = tuple[int, int]
# Of one answer. The outbox gives 500 versions, and names the others in ranges between these.
MOST_VERSIONS = 1_000
MOST_RANGES = 2_000
# Of one version: a source is not held by the brokers' limit. As of a version of the old service.
MOST_BYTES = 8 * 1024 * 1024
TOO_LARGE = f"it has more than {MOST_BYTES:,} bytes"
_LONGEST_LAST_LINE = 64 * MOST_RANGES


@dataclass(frozen=True, slots=True)
class Answer:
    """Of the versions that were asked for, in `covered`: values, the messages by number; gone: the
    source does not have them, and never will; waiting: it sends them later. refused: why others
    cannot be used, by number."""

    covered: Sequence[Range]
    values: dict[int, bytes]
    gone: Sequence[Range] = ()
    waiting: Sequence[Range] = ()
    refused: dict[int, str] = field(default_factory=dict)


class _Rest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    gone: list[tuple[int, int]]
    waiting: list[tuple[int, int]]
    unrecorded: list[tuple[int, int]]
    next: int | None


def read(body: bytes, asked: Range) -> tuple[Answer, Range | None]:
    """The answer in a body, and what is left to ask for; None: nothing. Raises WrongAnswerError."""
    # Before anything is made of it: an empty line is a byte in the answer, and much more here.
    if body.count(b"\n") > MOST_VERSIONS:
        raise WrongAnswerError(f"it gives more than {MOST_VERSIONS:,} versions at once")
    *values, last = body.split(b"\n")
    if len(last) > _LONGEST_LAST_LINE:
        raise WrongAnswerError("its last line is longer than any that it can need")
    try:
        rest = msgspec.json.decode(last, type=_Rest)
    except (ValueError, RecursionError):
        raise WrongAnswerError("its last line does not say what became of the versions") from None
    first, end = asked
    if rest.next is not None:
        if not first < rest.next <= end:
            raise WrongAnswerError("it does not go on within what was asked for")
        end = rest.next - 1
    gone = sorted([*rest.gone, *rest.unrecorded])
    named = sorted([*gone, *rest.waiting])
    if len(named) > MOST_RANGES or not _fits(named, (first, end)):
        raise WrongAnswerError("it names versions that were not asked for, or one twice")
    if end - first + 1 - count(named) != len(values):
        raise WrongAnswerError("it has more or fewer versions than it says")
    given = dict(zip(_others(named, (first, end)), values, strict=True))
    refused = {number: TOO_LARGE for number, value in given.items() if len(value) > MOST_BYTES}
    kept = {number: value for number, value in given.items() if number not in refused}
    answer = Answer([(first, end)], kept, gone, rest.waiting, refused)
    return answer, None if rest.next is None else (rest.next, asked[1])


def count(ranges: Iterable[Range]) -> int:
    """How many numbers are in ranges that have none in common."""
    return sum(last - first + 1 for first, last in ranges)


def _fits(ranges: Sequence[Range], within: Range) -> bool:
    """Whether these sorted ranges have no number in common, and are inside of the limits."""
    ends = [within[0] - 1, *(number for each in ranges for number in each), within[1] + 1]
    in_order = all(first <= last for first, last in ranges)
    return in_order and all(low < high for low, high in list(pairwise(ends))[::2])


def _others(ranges: Sequence[Range], within: Range) -> Iterator[int]:
    start = within[0]
    for first, last in ranges:
        yield from range(start, first)
        start = last + 1
    yield from range(start, within[1] + 1)
