"""chain_streams yields the rows of several queries in order, and starts a query while the rows of
the query before it are read."""

from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing
from itertools import cycle

import psycopg
import pytest

from history.retention.cluster_swap import chain_streams
from history.store.days.canonical import Connection
from tests.db.partitioned import connect_plainly

pytestmark = pytest.mark.django_db


@pytest.fixture
def readers() -> Iterator[list[Connection]]:
    with ExitStack() as stack:
        yield [stack.enter_context(connect_plainly()) for _ in range(2)]


def stream_values(reader: Connection, query: str) -> Generator[int]:
    """Yield the values of a query as PostgreSQL sends them."""
    with reader.cursor() as cursor, cursor.copy(f"COPY ({query}) TO STDOUT") as copy:
        copy.set_types(["int4"])
        for (value,) in copy.rows():
            yield value


def chain_queries(readers: list[Connection], *queries: str) -> Generator[int]:
    """Return the values of all queries, chained by `chain_streams`.

    The queries use the connections `readers` in turn.
    """
    pairs = zip(cycle(readers), queries, strict=False)
    return chain_streams(readers, (stream_values(reader, query) for reader, query in pairs))


def test_chain_streams_yields_values_in_order_of_the_queries(readers: list[Connection]) -> None:
    queries = [f"SELECT generate_series({first}, {first + 4_999})" for first in (0, 5_000, 10_000)]
    empty = "SELECT 1 WHERE false"
    chained = chain_queries(readers, queries[0], empty, *queries[1:], empty)
    assert list(chained) == list(range(15_000))
    assert list(chain_queries(readers)) == []


def test_values_of_earlier_queries_are_yielded_before_error_of_later_query_is_raised(
    readers: list[Connection],
) -> None:
    values = chain_queries(readers, "SELECT generate_series(1, 3)", "SELECT 1 / 0")
    assert [next(values) for _ in range(3)] == [1, 2, 3]
    with pytest.raises(psycopg.errors.DivisionByZero):
        next(values)


def test_query_of_next_stream_is_cancelled_when_caller_stops_reading(
    readers: list[Connection],
) -> None:
    """Without the cancellation the caller would wait for an hour."""
    with closing(chain_queries(readers, "SELECT 1", "SELECT 2 FROM pg_sleep(3600)")) as values:
        assert next(values) == 1
    assert [reader.execute("SELECT 3").fetchone() for reader in readers] == [(3,), (3,)]


def test_error_of_unread_stream_does_not_replace_the_exception_of_the_caller(
    readers: list[Connection],
) -> None:
    """A damaged block in the next range must not hide that somebody stops the process."""

    def fail() -> Generator[int]:
        readers[1].execute("SELECT 1")
        raise ValueError("a damaged block")
        yield 0

    first = stream_values(readers[0], "SELECT generate_series(1, 3)")
    values = chain_streams(readers, iter([first, fail()]))
    assert next(values) == 1
    with pytest.raises(KeyboardInterrupt):
        values.throw(KeyboardInterrupt())
