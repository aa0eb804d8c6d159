"""One is one."""

from collections.abc import Callable

import pytest

from history.base.table import counted
from outbox.errors import counted as of_the_outbox


@pytest.mark.parametrize("words", [counted, of_the_outbox])
def test_the_noun_fits_the_number(words: Callable[..., str]) -> None:
    assert [words(n, "day") for n in (0, 1, 2, 1234)] == ["0 days", "1 day", "2 days", "1,234 days"]
    assert [words(n, "it is", "they are") for n in (1, 2)] == ["1 it is", "2 they are"]
