"""Whether a sample of a halted partition is good enough to read on."""

from __future__ import annotations

import pytest

from ingest.consumer.background import sample_is_good
from ingest.consumer.breaker import Tolerance
from tests.messages import EXPIRED, WINDOW, message, value


@pytest.mark.parametrize(
    "pattern, gone",
    [
        ("", False),
        ("x", False),
        (".", True),
        ("xxxxxxxxxx", False),
        (".....xxxxx", False),
        ("......xxxx", True),
        ("eeeeeexxxx", True),
    ],
)
def test_fewer_bad_than_tolerated_and_some_there(pattern: str, gone: bool) -> None:
    """Good (.), bad (x) and expired (e) messages; half may be bad, but not quite."""
    bodies = {".": value(), "x": b"bad", "e": EXPIRED}
    messages = [message(bodies[each], offset) for offset, each in enumerate(pattern)]
    assert sample_is_good(messages, WINDOW, Tolerance(100, 0.5, 1_000)) is gone
