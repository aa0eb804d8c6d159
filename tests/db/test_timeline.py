"""A timeline: order, pages, exact numbers, and versions that come or leave during a request."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from history import timeline
from history.common import deadline
from history.documents.record import ChangeType
from history.kinds.entities import (
    BY_NAME,
    ENTITIES,
    ROOT,
    EntityKind,
)
from history.store.days.days import build_partition_name
from history.store.versions import LAST, VersionKey
from history.timeline import (
    BadParameterError,
    NoVersionError,
    OlderThanRetentionError,
    TimelineOrder,
    TimelineQuery,
    TimelineSort,
    VersionFilters,
    compose,
)
from history.timeline.sources import statements
from history.timeline.version_index import EntityVersions
from tests.db.screens import A1, WHOLE
from tests.db.store import HOST, T0, Store, minute, record_queries


def list_numbers(versions: object) -> list[int]:
    return [version.version for version in versions]  # type: ignore[attr-defined]


def fetch_page(**parameters: object) -> timeline.TimelinePage:
    return timeline.fetch_page(HOST, TimelineQuery(**{"entity": ROOT, "id": "A1", **parameters}))  # type: ignore[arg-type]


@pytest.fixture
def seven_versions(store: Store) -> Store:
    """Store the versions 0 to 6, one each minute; each raises the rate."""
    for version in range(7):
        store.add("A1", version, {"rate": version, "name": "x"}, version)
    return store


def test_millions_of_missing_versions_are_returned_as_one_range(store: Store) -> None:
    store.add("A1", 0, {}, 0)
    store.add("A1", 2_147_483_647, {"n": 1}, 1)
    (newest, _) = fetch_page().versions
    assert newest.previous_version == 0
    assert len(newest.missing) == 2_147_483_646


def test_snapshot_nested_too_deep_is_compared_as_a_whole(store: Store) -> None:
    store.add("A1", 0, {"n": 1}, 0)
    store.add("A1", 1, "[" * 3000 + "]" * 3000, 1)
    store.add("A1", 2, {"n": 2}, 2)
    versions = fetch_page().versions
    assert [[op["op"] for op in v.patch or []] for v in versions] == [["replace"], ["replace"], []]


def test_request_deadline_is_checked_at_each_version(seven_versions: Store) -> None:
    [newest] = EntityVersions.load(HOST, ROOT, "A1", [LAST], 2).read_pairs(VersionKey(6, minute(6)))
    checks: list[None] = []
    with deadline.run_as_work(work := deadline.RequestWork()):
        work.on_check = lambda: checks.append(None)
        compose.compose_versions(HOST, [newest], frozenset())
        few = len(checks)
        compose.compose_versions(HOST, [newest] * 5, frozenset())
    assert (few, len(checks)) == (1, 6)


def test_page_token_from_another_query_is_rejected(seven_versions: Store) -> None:
    token = fetch_page(page_size=2).next_token
    assert token is not None
    assert token.startswith("v1:")
    assert list_numbers(fetch_page(page_token=token, page_size=3).versions) == [4, 3, 2]
    seven_versions.add("B1", 0, {}, 0)
    for other_query in (
        {"id": "B1"},
        {"sort": TimelineSort.VERSION},
        {"order": TimelineOrder.ASC},
        {"filters": VersionFilters(author="m.ivanov")},
        {"page_token": token[:-1] + ("A" if token[-1] != "A" else "B")},
        {"page_token": token.replace("v1:", "")},
        {"page_token": "v1:"},
        {"page_token": "v1:é"},
    ):
        with pytest.raises(BadParameterError, match="pageToken"):
            fetch_page(**{"page_token": token, **other_query})


@pytest.mark.parametrize("size", [2, 5, 100])
@pytest.mark.parametrize("filters", [VersionFilters(), VersionFilters(author="m.ivanov")])
@pytest.mark.parametrize("sort", TimelineSort)
def test_page_takes_at_most_four_queries(
    seven_versions: Store,
    monkeypatch: pytest.MonkeyPatch,
    size: int,
    filters: VersionFilters,
    sort: TimelineSort,
) -> None:
    fetch_page()  # loads the catalogue of labels
    token = fetch_page(page_size=2, filters=filters, sort=sort).next_token
    with record_queries(monkeypatch) as statements:
        fetch_page(page_size=size, filters=filters, sort=sort, page_token=token)
    assert len(statements) <= 4, statements
    texts = [text.upper().replace("OFFSET 0)", "") for text in statements]  # OFFSET 0 skips no row
    assert not [text for text in texts if "OFFSET" in text or "COUNT(" in text]


@pytest.mark.plain_only("a cluster plans the statements on its nodes")
def test_timelines_with_different_filters_share_prepared_statements(seven_versions: Store) -> None:
    for filters in (
        VersionFilters(),
        VersionFilters(author="anna"),
        VersionFilters(type=ChangeType.UPDATE, since=minute(1)),
        VersionFilters(client_id="crm", until=minute(5)),
    ):
        fetch_page(filters=filters, page_size=2)
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement, generic_plans FROM pg_prepared_statements")
        counts = [count for text, count in cursor.fetchall() if "ORDER BY updated_at desc" in text]
    assert len(counts) == 2  # one statement with filters, and one without
    assert sum(counts) >= 4


@pytest.fixture
def run_after_statement(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that lets an action run once, right after the nth SQL statement that
    contains a given text."""

    def arrange(text: str, action: Callable[[], None], number: int = 1) -> None:
        plain, seen = statements.fetch_rows, [0]

        def fetch(statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
            rows = plain(statement, values)
            seen[0] += text in statement
            if text in statement and seen[0] == number:
                action()
            return rows

        monkeypatch.setattr(statements, "fetch_rows", fetch)

    return arrange


def drop_day(*entities: EntityKind) -> Callable[[], None]:
    """Return a function that drops the day of T0, as retention does."""

    def drop() -> None:
        with connection.cursor() as cursor:
            for entity in entities or ENTITIES:
                cursor.execute(
                    f"DROP TABLE IF EXISTS {build_partition_name(entity.table, T0.date())}"
                )

    return drop


@pytest.fixture
def loan_application(store: Store) -> Store:
    """Store the versions 0 to 2 on the day before T0, and 3 to 5 on the day of T0."""
    for version in range(6):
        day = 0 if version > 2 else -24 * 60
        store.add("A1", version, {"rate": version}, day + version)
    return store


TASK = BY_NAME["product-task"]
MERGED = "page AS MATERIALIZED ("
KEYS = "WITH keys AS MATERIALIZED"


def test_application_timeline_is_right_when_day_is_dropped_after_version_keys_were_read(
    loan_application: Store, run_after_statement: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("history.timeline.budget.BATCH_VERSIONS", 3)
    run_after_statement(MERGED, drop_day())
    query = TimelineQuery(id="A1", filters=VersionFilters(path="/rate"))
    assert [version.version for version in timeline.fetch_page(HOST, query).versions] == [
        2,
        1,
    ]


def test_application_timeline_is_right_when_day_is_dropped_while_page_is_read(
    loan_application: Store, run_after_statement: Any
) -> None:
    run_after_statement(MERGED, drop_day())
    page = timeline.fetch_page(HOST, TimelineQuery(id="A1", page_size=3))
    assert [version.version for version in page.versions] == [2, 1, 0]
    assert page.next_token is None


def test_version_is_answered_when_its_day_is_dropped_after_version_keys_were_read(
    loan_application: Store, run_after_statement: Any
) -> None:
    """The query for the version keys also returns the version and its previous version."""
    run_after_statement(KEYS, drop_day(ROOT))
    version = timeline.fetch_version(HOST, ROOT, "A1", 5)
    assert (version.version, version.previous_version) == (5, 4)
    assert [operation["path"] for operation in version.patch or ()] == ["/rate"]


def test_comparison_fails_when_day_is_dropped_before_large_snapshots_were_read(
    loan_application: Store, run_after_statement: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query for the version keys also returns one of the two snapshots. The day is
    dropped before a second query reads the missing snapshot."""
    monkeypatch.setattr(statements, "READ_BYTES", 1)
    run_after_statement(KEYS, drop_day(ROOT))
    with pytest.raises(OlderThanRetentionError):
        timeline.compare_versions(HOST, ROOT, "A1", 4, 5)


def test_second_request_finds_document_when_first_version_is_stored_during_first_request(
    store: Store, run_after_statement: Any
) -> None:
    run_after_statement("FROM product_instance_aud", lambda: store.add("A1", 0, {"rate": 1}, 0))
    with pytest.raises(NoVersionError):
        timeline.fetch_page(HOST, TimelineQuery(entity=ROOT, id="A1"))
    assert len(timeline.fetch_page(HOST, TimelineQuery(entity=ROOT, id="A1")).versions) == 1


@pytest.mark.parametrize("address", [A1, WHOLE, f"{A1}state/", f"{A1}compare/"])
def test_screen_shows_document_when_first_version_is_stored_during_the_request(
    store: Store, support: Client, run_after_statement: Any, address: str
) -> None:
    run_after_statement("FROM product_instance_aud", lambda: store.add("A1", 0, {"rate": 1}, 0))
    assert support.get(address).status_code in (200, 404)
    assert support.get(address).status_code == 200


@pytest.mark.parametrize("address", [A1, WHOLE, f"{A1}state/", f"{A1}compare/"])
@pytest.mark.parametrize("statement", [1, 2, 3, 4])
def test_screen_says_not_found_when_document_is_removed_during_the_request(
    store: Store, support: Client, run_after_statement: Any, address: str, statement: int
) -> None:
    store.add("A1", 0, {"rate": 1}, 0)
    store.add("A1", 2, {"rate": 1}, 1)
    run_after_statement("product_instance_aud", drop_day(), statement)
    assert support.get(address).status_code in (200, 404)
