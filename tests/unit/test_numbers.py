"""Numbers that commands take: those without a meaning are refused before anything is done."""

from __future__ import annotations

import pytest
from django.core.management import CommandError, call_command

from history.management.numbers import number, whole


@pytest.mark.parametrize(
    "given",
    [
        "capacity --rps -1",
        "capacity --rps 0",
        "capacity --rps 200 --avg-bytes 0",
        "capacity --rps 200 --growth -5",
        "capacity --rps 200 --days 0",
        "capacity --rps 200 --days -4",
        "capacity --rps 200 --checkpoint 0",
        "capacity --rps nan",
        "compare-old --sample -3",
        "migrate --give-up-after inf",
        "migrate --lock-timeout -1",
        "migrate --statement-timeout x",
        "share --rows 0",
        "share --days 99999999999",
    ],
)
def test_a_number_without_a_meaning_is_refused(given: str) -> None:
    name, *arguments = given.split()
    option, text = arguments[-2:]
    with pytest.raises(CommandError, match=f"argument {option}: '{text}' is not a .*number from"):
        call_command(name, *arguments)


def test_the_bounds_are_included() -> None:
    assert [whole(1, 9)(text) for text in ("1", "9")] == [1, 9]
    assert [number(0, 0.5)(text) for text in ("0", "0.5")] == [0.0, 0.5]
