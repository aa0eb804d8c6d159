"""A cache of bounded size."""

from __future__ import annotations

from ingest.consumer.lanes import BoundedCache


def test_it_keeps_the_last_names_and_at_most_twice_as_many() -> None:
    memory: BoundedCache[int] = BoundedCache(10)
    for number in range(100):
        memory.update({str(number): number})
        assert all(memory.get(str(n)) == n for n in range(max(0, number - 9), number + 1))
        assert sum(memory.get(str(n)) is not None for n in range(number + 1)) <= 20
    assert memory.get("0") is None


def test_the_last_value_counts() -> None:
    memory: BoundedCache[int] = BoundedCache(2)
    for values in ({"a": 1, "b": 1}, {"a": 2}):
        memory.update(values)
    assert (memory.get("a"), memory.get("b")) == (2, 1)
