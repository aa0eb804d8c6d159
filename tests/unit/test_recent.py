"""A memory that is bounded."""

from __future__ import annotations

from ingest.recent import Recent


def test_it_remembers_the_last_so_many_and_at_most_twice_as_many() -> None:
    memory = Recent(10)
    for number in range(100):
        memory.update([number])
        assert all(each in memory for each in range(max(0, number - 9), number + 1))
        assert sum(each in memory for each in range(number + 1)) <= 20
    assert 0 not in memory
