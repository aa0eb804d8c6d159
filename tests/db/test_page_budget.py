"""Pages together have each version, value or change exactly once, whatever limit ends a page.

This also holds if versions arrive between two pages. A masked value does not influence where a page
ends.
"""

import itertools
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from history import timeline
from history.documents.record import ChangeType
from history.kinds.entities import BY_NAME, ROOT
from history.models import FieldLabel
from history.store.catalogue import labels
from history.timeline import (
    TimelineOrder,
    TimelinePage,
    TimelineQuery,
    TimelineSort,
    Version,
    VersionFilters,
    budget,
)
from history.timeline.sources import statements
from tests.db.calls import get_data
from tests.db.store import HOST, Store, minute


@dataclass(frozen=True)
class DrawnVersion:
    """A random version of the application A1."""

    version: int
    minute: int  # of few values, so that versions share a moment
    author: str
    rate: int


DRAWN = st.builds(
    DrawnVersion,
    st.integers(0, 15),
    st.integers(0, 6),
    st.sampled_from(["anna", "boris"]),
    st.integers(0, 2),
)
HISTORY = st.lists(
    DRAWN, min_size=1, max_size=25, unique_by=lambda change: (change.version, change.minute)
)
FILTERS = st.builds(
    VersionFilters,
    author=st.sampled_from([None, "anna"]),
    type=st.sampled_from([None, ChangeType.UPDATE]),
    since=st.sampled_from([None, minute(1), minute(3)]),
    until=st.sampled_from([None, minute(4), minute(6)]),
    path=st.sampled_from([None, "/rate"]),
)


@contextmanager
def store_history(store: Store, history: list[DrawnVersion]) -> Iterator[None]:
    """Store versions of the application A1, and roll them back at the end of the `with` block."""
    with transaction.atomic():
        for change in history:
            write(store, change)
        yield
        transaction.set_rollback(True)


def write(store: Store, change: DrawnVersion) -> None:
    data = {"rate": change.rate, "v": change.version}
    store.add("A1", change.version, data, change.minute, author=change.author)


def describe_version(version: Version) -> tuple[int, int]:
    return version.version, round((version.updated_at - minute(0)).total_seconds() / 60)


PERSON = BY_NAME["participant-role"]
API = "/api/v1/history/product-instance"
# A page with a path filter ends after this number of versions, even if none matches.
SCAN = 8
# The limits of a page: its bytes, the bytes that one statement reads, and its seconds. The smallest
# ones let a page have one version, the largest ones let it have all.
LIMITS = st.tuples(
    st.sampled_from([1, 150, 400, 10**9]),
    st.sampled_from([1, 40, 90, 10**9]),
    st.sampled_from([0.0, 10**9]),
)

relaxed = settings(
    max_examples=100,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@contextmanager
def limit_pages(page_bytes: float, read_bytes: int, seconds: float) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "PAGE_BYTES", page_bytes)
        patch.setattr(budget, "PAGE_SECONDS", seconds)
        patch.setattr(budget, "BATCH_VERSIONS", 4)  # so that a path filter reads several batches,
        patch.setattr(budget, "SCAN_VERSIONS", SCAN)  # and stops in between
        patch.setattr(statements, "READ_BYTES", read_bytes)
        yield


def fetch_pages(fetch_page: Any, query: Any) -> list[TimelinePage]:
    """Return all pages of a query, each fetched with the page token of the page before."""
    answers = [fetch_page(HOST, query)]
    while answers[-1].next_token is not None:
        assert len(answers) < 1_000, "the page tokens form a circle"
        answers.append(fetch_page(HOST, replace(query, page_token=answers[-1].next_token)))
    return answers


def check_tokens_lead_on(timeline_pages: Sequence[TimelinePage]) -> None:
    assert len(timeline_pages) == 1 or all(page.versions for page in timeline_pages)


def list_versions(timeline_pages: Sequence[TimelinePage]) -> list[Version]:
    """Return the versions on all pages, with `listed_count` and `answer_bytes` set to 0.

    The values of these two fields depend on the limits of a page.
    """
    versions = (version for page in timeline_pages for version in page.versions)
    return [
        msgspec.structs.replace(version, listed_count=0, answer_bytes=0) for version in versions
    ]


TWINS = [
    DrawnVersion(1, 0, "anna", 0),
    DrawnVersion(1, 4, "anna", 1),
    DrawnVersion(2, 2, "anna", 2),
]
NO_LIMIT = (10**9, 10**9, 10**9)


@relaxed
@example(TWINS, VersionFilters(), TimelineSort.VERSION, TimelineOrder.DESC, 1, NO_LIMIT)
@example(TWINS, VersionFilters(), TimelineSort.UPDATED_AT, TimelineOrder.ASC, 1, NO_LIMIT)
@example(
    [DrawnVersion(version, 0, "boris", 0) for version in range(9)],
    VersionFilters(author="anna"),
    TimelineSort.UPDATED_AT,
    TimelineOrder.DESC,
    1,
    (1, 1, 0.0),
)
@given(
    HISTORY,
    FILTERS,
    st.sampled_from(TimelineSort),
    st.sampled_from(TimelineOrder),
    st.integers(1, 6),
    LIMITS,
)
def test_every_version_is_on_exactly_one_page_whatever_the_budget(
    store: Store,
    history: list[DrawnVersion],
    filters: VersionFilters,
    sort: TimelineSort,
    order: TimelineOrder,
    size: int,
    limits: tuple[int, int, float],
) -> None:
    """tests/oracle checks the contents of the pages."""
    with store_history(store, history):
        query = TimelineQuery(
            entity=ROOT, id="A1", filters=filters, sort=sort, order=order, page_size=size
        )
        with limit_pages(*limits):
            timeline_pages = fetch_pages(timeline.fetch_page, query)
        whole = fetch_pages(timeline.fetch_page, query)
        assert all(len(page.versions) <= size for page in timeline_pages)
        seen = list_versions(timeline_pages)
        assert seen == list_versions(whole)
        if filters.path is None or (limits[2] and len(history) < SCAN):
            check_tokens_lead_on(timeline_pages)


@relaxed
@given(HISTORY, HISTORY, FILTERS, st.sampled_from(TimelineOrder), st.integers(1, 6), LIMITS)
def test_every_version_of_application_is_on_exactly_one_page_whatever_the_budget(
    store: Store,
    history: list[DrawnVersion],
    child: list[DrawnVersion],
    filters: VersionFilters,
    order: TimelineOrder,
    size: int,
    limits: tuple[int, int, float],
) -> None:
    with store_history(store, history):
        for change in child:
            data = {"rate": change.rate, "text": "x" * change.rate * 30}
            store.add(
                "P1", change.version, data, change.minute, entity=PERSON, author=change.author
            )
        query = TimelineQuery(id="A1", filters=filters, order=order, page_size=size)
        with limit_pages(*limits):
            timeline_pages = fetch_pages(timeline.fetch_page, query)
        whole = fetch_pages(timeline.fetch_page, query)
        seen = list_versions(timeline_pages)
        assert seen == list_versions(whole)
        places = [(version.entity.name, *describe_version(version)) for version in seen]
        assert len(places) == len(set(places))
        if filters.path is None or (limits[2] and len(history) + len(child) < SCAN):
            check_tokens_lead_on(timeline_pages)


@relaxed
@given(HISTORY, st.integers(1, 4), LIMITS)
def test_every_value_of_a_field_is_on_exactly_one_page_whatever_the_budget(
    store: Store, history: list[DrawnVersion], size: int, limits: tuple[int, int, float]
) -> None:
    with store_history(store, history):

        def walk() -> list[timeline.FieldValue]:
            seen: list[timeline.FieldValue] = []
            token = None
            for _ in range(1_000):
                page = timeline.fetch_field_history(HOST, ROOT, "A1", "/rate", size, token)
                seen += page.values
                token = page.next_token
                if token is None:
                    return seen
            raise AssertionError("the page tokens form a circle")

        with limit_pages(*limits):
            values = walk()
        assert values == walk()


def store_documents(store: Store, count: int, size: int) -> None:
    for version in range(count):
        store.add("A1", version, {"n": version, "text": str(version % 10) * size}, version)


def test_size_of_page_and_of_each_query_result_stays_within_budget(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_documents(store, 30, 10_000)
    read: list[int] = []
    plain = statements.fetch_rows

    def fetch(statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        rows = plain(statement, values)
        read.append(sum(len(item) for row in rows for item in row if isinstance(item, bytes)))
        return rows

    monkeypatch.setattr(statements, "fetch_rows", fetch)
    with limit_pages(100_000, 60_000, 10**9):
        timeline_pages = fetch_pages(
            timeline.fetch_page, TimelineQuery(entity=ROOT, id="A1", page_size=500)
        )
    assert (
        max(sum(version.answer_bytes for version in page.versions) for page in timeline_pages)
        <= 100_000
    )
    assert max(read) <= 60_000
    assert [version.version for page in timeline_pages for version in page.versions] == [
        *range(30)
    ][::-1]


def test_version_larger_than_the_limit_of_a_page_is_alone_on_a_page(store: Store) -> None:
    for version, size in enumerate([10, 5_000, 10, 10]):
        store.add("A1", version, {"n": version, "text": "x" * size}, version)
    with limit_pages(1_000, 1_000, 10**9):
        timeline_pages = fetch_pages(timeline.fetch_page, TimelineQuery(entity=ROOT, id="A1"))
    numbers = [[version.version for version in page.versions] for page in timeline_pages]
    assert numbers == [[3, 2], [1], [0]]


@pytest.mark.parametrize("address", ["A1", "A1?path=/n", "A1/fields?path=/n"])
@pytest.mark.parametrize("read_bytes", [1, 3_000])
def test_end_of_page_does_not_depend_on_size_of_masked_value(
    store: Store, client: Client, address: str, read_bytes: int
) -> None:
    FieldLabel.objects.create(entity="", path="/secret", russian="Тайна", sensitive=True)
    labels.forget_catalogue()
    client.force_login(User.objects.get(username="support"))
    for version in range(8):
        secret = str(version % 3)
        store.add("A1", version, {"n": version, "secret": secret * 4_000 * version}, version)
        store.add("B1", version, {"n": version, "secret": secret * version}, version)

    def fetch_numbers(address: str) -> Iterator[list[int]]:
        token = ""
        for _ in range(20):
            joint = "&" if "?" in address else "?"
            page = get_data(client, f"{API}/{address}{joint}{token}".rstrip("?&"))
            yield [item["version"] for item in page.get("history", page.get("values"))]
            if "nextPageToken" not in page:
                return
            token = f"pageToken={page['nextPageToken']}"

    with limit_pages(1_200, read_bytes, 10**9):
        first, second = (list(fetch_numbers(address.replace("A1", id))) for id in ("A1", "B1"))
    assert first == second
    assert "fields" in address or len(first) > 1


@pytest.fixture
def version_with_many_changes(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Store two versions with 25 changes between them; an answer lists at most ten changes."""
    monkeypatch.setattr(budget, "MAX_CHANGES", 10)
    monkeypatch.setattr(budget, "MAX_LEAVES", 10)
    for version in range(2):
        store.add("A1", version, {f"f{n:02}": n + version for n in range(25)}, version)
    return store


@pytest.mark.parametrize("call", ["A1/versions/1?", "A1/compare?from=0&to=1&"])
def test_changes_of_one_version_are_paged_when_there_are_many(
    version_with_many_changes: Store, auditor: Client, call: str
) -> None:
    parts = []
    after = "changesAfter=0"
    for _ in range(3):
        part = get_data(auditor, f"{API}/{call}{after}")
        assert part["changeCount"] == 25
        assert len(part["diff"]) == 25 or part["diff"][0]["path"] == ""
        parts.append(part["changes"])
        after = f"changesAfter={part.get('nextChanges')}"
    assert [len(part) for part in parts] == [10, 10, 5]
    assert "nextChanges" not in part
    paths = [item["path"] for item in itertools.chain(*parts)]
    assert paths == [f"/f{n:02}" for n in range(25)]
    assert get_data(auditor, f"{API}/{call}changesAfter=99")["changes"] == []
    wrong = auditor.get(f"{API}/{call}changesAfter=-1")
    assert (wrong.status_code, wrong.json()["error"]["parameter"]) == (400, "changesAfter")


def test_changes_at_the_filtered_path_are_listed_first(
    version_with_many_changes: Store, auditor: Client
) -> None:
    (version,) = get_data(auditor, f"{API}/A1?path=/f21&include=changes")["history"]
    assert [item["path"] for item in version["changes"]][:2] == ["/f21", "/f00"]
    next_part = get_data(
        auditor, f"{API}/A1/versions/1?path=/f21&changesAfter={version['nextChanges']}"
    )
    assert [item["path"] for item in next_part["changes"]] == [f"/f{n:02}" for n in range(9, 19)]
    wrong = auditor.get(f"{API}/A1/versions/1?path=f21")
    assert (wrong.status_code, wrong.json()["error"]["parameter"]) == (400, "path")


def test_page_says_that_changes_of_version_are_incomplete(
    version_with_many_changes: Store, auditor: Client
) -> None:
    newest, oldest = get_data(auditor, f"{API}/A1")["history"]
    assert (len(newest["changes"]), newest["changeCount"], newest["nextChanges"]) == (10, 25, 10)
    assert "changeCount" not in oldest
    version_with_many_changes.add("A1", 2, {f"f{n:02}": n + 1 for n in range(1, 25)}, 3)
    assert "changeCount" not in get_data(auditor, f"{API}/A1?pageSize=1")["history"][0]


def test_blame_is_paged_when_document_has_many_values(
    version_with_many_changes: Store, auditor: Client
) -> None:
    seen = []
    after: Any = 0
    while after is not None:
        part = get_data(auditor, f"{API}/A1/blame?leavesAfter={after}")
        assert part["leafCount"] == 25
        assert len(part["blame"]) <= 10
        seen += [item["path"] for item in part["blame"]]
        after = part.get("nextLeaves")
    assert seen == [f"/f{n:02}" for n in range(25)]


@pytest.mark.parametrize("call", ["A1", "A1/versions/1", "A1/blame", "A1/compare?from=0&to=1"])
def test_answer_does_not_repeat_a_long_path_for_each_field_below_it(
    store: Store, auditor: Client, call: str
) -> None:
    key = "k" * 20_000
    for version in range(2):
        fields = {f"f{n}": n + version for n in range(1_000)}
        store.add("A1", version, {key: fields}, version)
        store.add("B1", version, {"items": [{"pid": key, **fields}]}, version)
    for id in ("A1", "B1"):
        answer = auditor.get(f"{API}/{call.replace('A1', id)}")
        assert answer.status_code == 200
        assert len(answer.content) < 400_000


def test_numbers_with_thousands_of_zeros_are_answered_in_their_short_notation(
    store: Store, auditor: Client
) -> None:
    """PostgreSQL stores 1e131071 with 131,072 digits."""
    numbers = ["1e131071", "-25e100000", "1e-16000", "-7e-9999"]
    for version in range(3):
        text = json.dumps({"v": version, "n": 0})[:-1] + f', "big": [{", ".join(numbers)}]}}'
        store.add("A1", version, text, version)
    for call in ("A1", "A1/versions/2", "A1/at?time=2100-01-01", "A1/blame"):
        answer = auditor.get(f"{API}/{call}")
        assert len(answer.content) < 10_000
        for number in numbers:
            assert number.encode() in answer.content
    changed = get_data(auditor, f"{API}/A1/versions/2?include=changes")["changes"]
    assert [item["path"] for item in changed] == ["/v"]


def test_state_of_application_at_moment_omits_snapshots_beyond_the_budget(
    store: Store, auditor: Client
) -> None:
    store.add("A1", 0, {"text": "a" * 900}, 0)
    for number in range(9):
        child = {"text": str(number) * 300, "createdAt": "2026-01-01"}
        store.add(f"P{number}", 0, child, 1, entity=PERSON)
    with limit_pages(1_900, 700, 10**9):
        answer_data = get_data(auditor, "/api/v1/applications/A1/at?time=2100-01-01")
    assert answer_data["application"]["entity"]["text"] == "a" * 900
    people = answer_data["children"]["participant-role"]
    assert [item["id"] for item in people] == [f"P{number}" for number in range(9)]
    assert ["entity" in item for item in people] == [True] * 2 + [False] * 7
    assert {item["createdAt"] for item in people} == {"2026-01-01"}
    whole = get_data(auditor, "/api/v1/applications/A1/at?time=2100-01-01")
    assert all("entity" in item for item in whole["children"]["participant-role"])


def test_children_without_version_at_moment_are_all_listed_when_read_in_several_queries(
    store: Store, auditor: Client
) -> None:
    store.add("A1", 3, {"text": "a" * 900}, 0)
    for number in range(5):
        store.add(f"P{number}", 4, {"text": str(number) * 300}, 9, entity=PERSON)
    with limit_pages(10**9, 700, 10**9):
        state = timeline.fetch_application_at(HOST, "A1", minute(1))
    assert [part.id for part in state.missing] == [f"P{number}" for number in range(5)]


@relaxed
@given(
    HISTORY,
    st.lists(DRAWN, max_size=12),
    st.sampled_from(TimelineSort),
    st.sampled_from(TimelineOrder),
    st.integers(1, 4),
)
def test_each_version_is_on_exactly_one_page_when_versions_arrive_between_pages(
    store: Store,
    history: list[DrawnVersion],
    late: list[DrawnVersion],
    sort: TimelineSort,
    order: TimelineOrder,
    size: int,
) -> None:
    stored_keys = {(change.version, change.minute) for change in history}
    arrivals = iter(
        [change for change in late if (change.version, change.minute) not in stored_keys]
    )
    with store_history(store, history):
        seen: list[tuple[int, int]] = []
        arrived: set[tuple[int, int]] = set()
        token = None
        while True:
            query = TimelineQuery(
                entity=ROOT, id="A1", sort=sort, order=order, page_size=size, page_token=token
            )
            page = timeline.fetch_page(HOST, query)
            seen += [describe_version(version) for version in page.versions]
            token = page.next_token
            if token is None:
                break
            for change in arrivals:
                if (change.version, change.minute) not in arrived:
                    write(store, change)
                    arrived.add((change.version, change.minute))
                    break
        assert len(seen) == len(set(seen))
        assert stored_keys <= set(seen) <= stored_keys | arrived
