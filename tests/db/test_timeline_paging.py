"""Paging over generated histories: nothing is lost, nothing repeated while versions arrive."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from history import timeline
from history.entities import ROOT
from history.record import ChangeType
from history.timeline import Filters, Order, Query, Sort, Version
from tests.db.store import HOST, Store, minute


@dataclass(frozen=True)
class Made:
    """A version to store. minute: when; few different ones, so that many share a moment."""

    version: int
    minute: int
    author: str
    rate: int


MADE = st.builds(
    Made,
    st.integers(0, 15),
    st.integers(0, 6),
    st.sampled_from(["anna", "boris"]),
    st.integers(0, 2),
)
HISTORY = st.lists(
    MADE, min_size=1, max_size=25, unique_by=lambda made: (made.version, made.minute)
)
FILTERS = st.builds(
    Filters,
    author=st.sampled_from([None, "anna"]),
    type=st.sampled_from([None, ChangeType.UPDATE]),
    since=st.sampled_from([None, minute(1), minute(3)]),
    until=st.sampled_from([None, minute(4), minute(6)]),
    path=st.sampled_from([None, "/rate"]),
)


@contextmanager
def rolled_back() -> Iterator[None]:
    """What is written inside is gone afterwards."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def write(store: Store, made: Made) -> None:
    store.add(
        "A1", made.version, {"rate": made.rate, "v": made.version}, made.minute, author=made.author
    )


def shown(version: Version) -> tuple[int, int]:
    return version.version, round((version.updated_at - minute(0)).total_seconds() / 60)


def previous(history: list[Made], made: Made) -> Made | None:
    """The nearest lower version; of twins the latest one that is not younger, else the oldest."""
    lower = [other for other in history if other.version < made.version]
    if not lower:
        return None
    twins = [other for other in lower if other.version == max(o.version for o in lower)]
    not_younger = [other for other in twins if other.minute <= made.minute]
    pick = max if not_younger else min
    return pick(not_younger or twins, key=lambda other: other.minute)


def expected(history: list[Made], filters: Filters, sort: Sort, order: Order) -> list[Made]:
    """What a reader who has everything in memory would show."""

    def fits(made: Made) -> bool:
        before = previous(history, made)
        return (
            (filters.author is None or made.author == filters.author)
            and (filters.type is None or (made.version > 0) == (filters.type is ChangeType.UPDATE))
            and (filters.since is None or minute(made.minute) >= filters.since)
            and (filters.until is None or minute(made.minute) < filters.until)
            and (filters.path is None or (before is not None and before.rate != made.rate))
        )

    def place(made: Made) -> tuple[int, int]:
        keys = (made.minute, made.version)
        return keys if sort is Sort.UPDATED_AT else keys[::-1]

    return sorted(filter(fits, history), key=place, reverse=order is Order.DESC)


relaxed = settings(
    max_examples=120,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@relaxed
@given(
    HISTORY,
    st.lists(MADE, max_size=12),
    st.sampled_from(Sort),
    st.sampled_from(Order),
    st.integers(1, 4),
)
def test_arrivals_between_pages_lose_and_repeat_nothing(
    store: Store, history: list[Made], late: list[Made], sort: Sort, order: Order, size: int
) -> None:
    there = {(made.version, made.minute) for made in history}
    arrivals = iter([made for made in late if (made.version, made.minute) not in there])
    with rolled_back():
        for made in history:
            write(store, made)
        seen: list[tuple[int, int]] = []
        arrived: set[tuple[int, int]] = set()
        token = None
        while True:
            query = Query(entity=ROOT, id="A1", sort=sort, order=order, page_size=size,
                          page_token=token)  # fmt: skip
            page = timeline.page(HOST, query)
            seen += [shown(version) for version in page.versions]
            token = page.next_token
            if token is None:
                break
            for made in arrivals:
                if (made.version, made.minute) not in arrived:
                    write(store, made)
                    arrived.add((made.version, made.minute))
                    break
        assert len(seen) == len(set(seen))
        assert there <= set(seen) <= there | arrived
