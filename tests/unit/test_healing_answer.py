"""What an outbox answers is believed as a whole, or not at all."""

from __future__ import annotations

import json
from typing import Any

import pytest

from annals.healing.answer import read
from history.fallback import WrongAnswerError

A, B, C = b'{"id":"A1","version":2}', b"not JSON", b"{}"


def body(*lines: bytes, **rest: Any) -> bytes:
    said = {"gone": [], "waiting": [], "unrecorded": [], "next": None, **rest}
    return b"\n".join([*lines, json.dumps(said).encode()])


def test_each_line_is_the_version_of_its_turn() -> None:
    given = body(A, B, gone=[[3, 4]], waiting=[[6, 6]], unrecorded=[[7, 2_000_000_000]])
    answer, left = read(given, (2, 2_000_000_000))
    assert (answer.values, left) == ({2: A, 5: B}, None)
    assert (answer.gone, answer.waiting) == ([(3, 4), (7, 2_000_000_000)], [(6, 6)])
    assert answer.covered == [(2, 2_000_000_000)]


def test_a_page_says_where_to_go_on() -> None:
    answer, left = read(body(A, C, next=4), (2, 9))
    assert (answer.values, answer.covered, left) == ({2: A, 3: C}, [(2, 3)], (4, 9))


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"<html>",
        b"[" * 100_000,
        A + b"\n" + B,
        b'{"gone": "all"}',
        body(A),
        body(A, B, C),
        body(A, B, more=1),
        body(A, gone=[[3, 3], [3, 3]]),
        body(A, gone=[[3, 3]], waiting=[[3, 3]]),
        body(gone=[[2, 9]]),
        body(gone=[[1, 3]]),
        body(gone=[[3, 2]]),
        body(next=2),
        body(A, next=4),
        body(A, next=-1),
        body(*[A] * 2, gone=[[0, -1]]),
    ],
)
def test_another_answer_is_refused(wrong: bytes) -> None:
    with pytest.raises(WrongAnswerError):
        read(wrong, (2, 3))


def test_no_more_ranges_than_an_outbox_gives() -> None:
    gone = [[number, number] for number in range(2, 6_002, 2)]
    with pytest.raises(WrongAnswerError):
        read(body(*[A] * 3_000, gone=gone), (2, 6_001))
