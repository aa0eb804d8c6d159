"""Lists of changes equal the lists that a simple program makes from the same versions."""

import itertools
import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from random import Random
from typing import Any, NamedTuple

import pytest

from history import timeline
from history.diff.path_filter import is_touched
from history.documents.exactjson import Json, loads
from history.documents.record import ChangeType
from history.kinds.entities import BY_NAME, ENTITIES, EntityKind, get_root
from history.retention.indexing import add_missing_indexes
from history.retention.packing import pack_day
from history.retention.runs import StepResult
from history.store import change_indexes
from history.store.days import days
from history.store.versions import LAST, TimelinePosition
from history.timeline import ChangesPage, ChangesQuery, VersionFilters
from history.timeline.query import TimelineOrder
from history.timeline.sources import field_filter
from history.timeline.sources.changes import ChangesQuestion, TimeSlice, make_statement
from tests.db.partitioned import connect_plainly
from tests.db.store import HOST, T0, Store, minute

KINDS = [get_root(), BY_NAME["product-task"], BY_NAME["product-car"]]
AUTHORS = ["m.ivanov", "m.prygunov", None]
SERVICES = ["top-crm", "top-robot"]
HOUR = 60


class ExpectedVersion(NamedTuple):
    """A version that a test stores and expects in lists of changes.

    The first four fields are the sort key of these lists.
    """

    moment: datetime
    kind: int
    id: str
    version: int
    author: str | None
    client: str
    type: ChangeType

    @property
    def entity(self) -> EntityKind:
        return ENTITIES[self.kind]


def make_versions(seed: int) -> list[ExpectedVersion]:
    """Make versions of 20 documents in three days; many share a moment."""
    random = Random(seed)
    versions = []
    for number in range(20):
        entity = random.choice(KINDS)
        minutes = random.randrange(0, 2 * 24 * HOUR)
        for version in range(random.randrange(1, 15)):
            minutes += random.choice([0, 0, 1, 5, 90])
            versions.append(
                ExpectedVersion(
                    minute(minutes - minutes % random.choice([1, 10])),
                    ENTITIES.index(entity),
                    f"D{number}",
                    version,
                    random.choice(AUTHORS),
                    random.choice(SERVICES),
                    ChangeType.UPDATE if version else ChangeType.CREATE,
                )
            )
    return versions


def store_versions(store: Store, versions: list[ExpectedVersion]) -> None:
    for version in versions:
        store.add(
            version.id,
            version.version,
            {"value": version.version // 3},
            version.moment,
            entity=version.entity,
            type=version.type,
            author=version.author,
            client=version.client,
        )


@pytest.fixture(params=["plain", "packed", "packed, late", "mixed"])
def stored_versions(request: pytest.FixtureRequest, tables: None) -> list[ExpectedVersion]:
    """Store versions in days that are plain, packed, packed with late rows, or mixed."""
    form = request.param
    versions = make_versions(seed=0)
    table_days = sorted({(version.entity.table, version.moment.date()) for version in versions})
    kinds = {entity.table: entity for entity in KINDS}
    late = versions[::4] if form == "packed, late" else []
    with connect_plainly() as plain:
        for table, day in table_days:
            days.create_partition(plain, table, day)
        store_versions(Store(), [version for version in versions if version not in late])
        for table, day in table_days:
            if form != "plain" and not (form == "mixed" and day == T0.date()):
                pack_day(plain, kinds[table], day)
    store_versions(Store(), late)
    return versions


def generate_filters() -> Iterator[tuple[VersionFilters, EntityKind | None]]:
    spans = [(minute(-1), minute(5 * 24 * HOUR)), (minute(30), minute(26 * HOUR))]
    for since, until in spans:
        for author, client, type in [
            ("m.ivanov", None, None),
            (None, "top-robot", None),
            ("m.prygunov", "top-crm", ChangeType.UPDATE),
            ("nobody", None, None),
        ]:
            filters = VersionFilters(
                since=since, until=until, author=author, client_id=client, type=type
            )
            yield filters, None
        yield filters, KINDS[1]
    yield VersionFilters(since=minute(600), until=minute(660)), None
    yield VersionFilters(since=minute(600), until=minute(660)), KINDS[0]


def is_selected(
    version: ExpectedVersion, filters: VersionFilters, entity: EntityKind | None
) -> bool:
    assert filters.since
    assert filters.until
    return (
        filters.since <= version.moment < filters.until
        and filters.author in (None, version.author)
        and filters.client_id in (None, version.client)
        and filters.type in (None, version.type)
        and entity in (None, version.entity)
    )


def read_pages(query: ChangesQuery) -> Iterator[ChangesPage]:
    token = None
    while True:
        page = timeline.fetch_changes_page(
            HOST,
            ChangesQuery(
                filters=query.filters,
                entity=query.entity,
                order=query.order,
                page_size=query.page_size,
                page_token=token,
                complete_to=query.complete_to,
            ),
        )
        yield page
        token = page.next_token
        if token is None:
            return


def list_sort_keys(page: ChangesPage) -> list[tuple[datetime, int, str, int]]:
    return [
        (version.updated_at, ENTITIES.index(version.entity), version.id, version.version)
        for version in page.versions
    ]


def test_pages_of_changes_equal_those_of_a_simple_reference_program(
    stored_versions: list[ExpectedVersion],
) -> None:
    for number, ((filters, entity), order) in enumerate(
        itertools.product(generate_filters(), TimelineOrder)
    ):
        expected = sorted(
            (version[:4] for version in stored_versions if is_selected(version, filters, entity)),
            reverse=order is TimelineOrder.DESC,
        )
        query = ChangesQuery(
            filters=filters,
            entity=entity,
            order=order,
            page_size=(1, 3, 7, 200)[number % 4],
            complete_to=minute(10 * 24 * HOUR),
        )
        pages = list(read_pages(query))
        assert [key for page in pages for key in list_sort_keys(page)] == expected
        assert all(page.is_complete for page in pages)
        assert all(len(page.versions) == query.page_size for page in pages[:-1])


def test_versions_in_changes_query_are_compared_with_their_previous_versions(
    stored_versions: list[ExpectedVersion],
) -> None:
    numbers = {(version.kind, version.id, version.version) for version in stored_versions}
    query = ChangesQuery(
        filters=VersionFilters(since=minute(-1), until=minute(5 * 24 * HOUR), author="m.ivanov"),
        page_size=500,
    )
    [page] = read_pages(query)
    assert page.versions
    for version in page.versions:
        number = version.version
        assert (ENTITIES.index(version.entity), version.id, number) in numbers
        assert version.previous_version == (number - 1 if number else None)
        assert [change.change.path for change in version.changes] == (
            ["/value"] if number and number % 3 == 0 else []
        )


def test_path_filter_selects_versions_that_changed_the_value_at_path(
    stored_versions: list[ExpectedVersion],
) -> None:
    filters = VersionFilters(
        since=minute(-1), until=minute(5 * 24 * HOUR), client_id="top-crm", path="/value"
    )
    expected = sorted(
        (
            version[:4]
            for version in stored_versions
            if version.client == "top-crm" and version.version and version.version % 3 == 0
        ),
        reverse=True,
    )
    pages = list(read_pages(ChangesQuery(filters=filters, page_size=4)))
    assert [key for page in pages for key in list_sort_keys(page)] == expected


class StoredSnapshot(NamedTuple):
    """A version with a snapshot of any JSON type: producers can send more than JSON objects."""

    moment: datetime
    id: str
    version: int
    snapshot: Any


def make_snapshots(seed: int) -> list[StoredSnapshot]:
    """Make versions of 40 documents in three days, with gaps, and with numbers that occur twice."""
    random = Random(seed)
    values = [1, 1, 1.0, 10, None, "a\0b", [1, 2], {"deep": 1}, {"deep": 1.0}]
    snapshots = []
    for number in range(40):
        minutes, version = random.randrange(0, 2 * 24 * HOUR), random.choice([0, 0, 3])
        value: Any = 1
        for _ in range(random.randrange(2, 12)):
            minutes += random.choice([1, 5, 300])
            if random.random() < 0.4:
                value = random.choice(values)
            snapshot: Any = {"value": value, "other": minutes}
            if (chance := random.random()) < 0.2:
                snapshot = [{"other": minutes}, None, [1, 2], "text"][int(chance * 20)]
            moment = minute(minutes) + timedelta(seconds=number)
            snapshots.append(StoredSnapshot(moment, f"D{number}", version, snapshot))
            version += random.choice([0, 1, 1, 1, 1, 2])
    return snapshots


def find_previous(
    snapshots: list[StoredSnapshot], version: StoredSnapshot
) -> StoredSnapshot | None:
    """Return the version of the same document with the next lower number, or None.

    If two versions have that number, return the later of these two. If the later one was written
    after `version`, return the earlier of the two.
    """
    lower = [
        other for other in snapshots if other.id == version.id and other.version < version.version
    ]
    if not lower:
        return None
    number = max(other.version for other in lower)
    twins = sorted(other for other in lower if other.version == number)
    return ([twins[0]] + [twin for twin in twins if twin.moment <= version.moment])[-1]


@pytest.mark.parametrize("form", ["plain", "packed", "packed, late", "mixed"])
def test_path_filter_finds_every_version_that_changed_the_path_in_generated_histories(
    form: str, tables: None
) -> None:
    snapshots = make_snapshots(seed=len(form))
    late = snapshots[::4] if form == "packed, late" else []
    with connect_plainly() as plain:
        for day in sorted({one.moment.date() for one in snapshots}):
            days.create_partition(plain, get_root().table, day)
        store_snapshots(Store(), [one for one in snapshots if one not in late])
        for day in sorted({one.moment.date() for one in snapshots}):
            if form != "plain" and not (form == "mixed" and day == T0.date()):
                pack_day(plain, get_root(), day)
    store_snapshots(Store(), late)
    for path, order in itertools.product(
        ["/value", "/value/deep", "/value/0", "/other", '/a"b'], TimelineOrder
    ):
        assert list_touched_by_pages(path, order) == sorted(
            (
                (one.moment, one.id, one.version)
                for one in snapshots
                if (previous := find_previous(snapshots, one))
                and is_touched(path, parse_exactly(previous.snapshot), parse_exactly(one.snapshot))
            ),
            reverse=order is TimelineOrder.DESC,
        )


def list_touched_by_pages(path: str, order: TimelineOrder) -> list[tuple[datetime, str, int]]:
    """Return moment, id and number of each version on the pages with a path filter."""
    filters = VersionFilters(
        since=minute(-1), until=minute(6 * 24 * HOUR), client_id="top-crm", path=path
    )
    query = ChangesQuery(
        filters=filters, page_size=7, order=order, complete_to=minute(10 * 24 * HOUR)
    )
    return [
        (version.updated_at, version.id, version.version)
        for page in read_pages(query)
        for version in page.versions
    ]


def parse_exactly(snapshot: object) -> Json:
    """Return the snapshot as Annals parses it: numbers keep all digits, and 1 equals 1.0."""
    return loads(json.dumps(snapshot).encode())


def store_snapshots(store: Store, snapshots: list[StoredSnapshot]) -> None:
    for one in snapshots:
        text = json.dumps(one.snapshot)
        # jsonb cannot hold NUL, so such a document is stored as the text of its JSON.
        stored = json.dumps(text) if "\\u0000" in text else text
        store.add(one.id, one.version, stored, one.moment, client="top-crm")


_FILL_DAY = """
    INSERT INTO {table} (id, version, data, updated_at, client_id, author, type)
    SELECT 'D' || number / 5, number %% 5, '{{"a": 1}}', %s::timestamptz + number * interval '17 s',
        'top-robot', CASE WHEN number %% 2 = 0 THEN 'robot' ELSE 'p' || number %% 300 END, 1
    FROM generate_series(0, 4999) AS number
"""


def fill_day(day: datetime) -> None:
    """Store 5,000 versions of a day; a robot makes half of them."""
    table = get_root().table
    with connect_plainly() as plain:
        days.create_partition(plain, table, day.date())
        plain.execute(_FILL_DAY.format(table=table), [day])
        plain.execute(f"ANALYZE {table}")


def explain_first_page(author: str, end: datetime, field: str | None = None) -> dict[str, Any]:
    """Return the plan of the statement that reads a first page.

    Args:
        field: Only versions that may have changed this field; None selects all versions.
    """
    span = TimeSlice(end - timedelta(days=3), end, TimelineOrder.DESC)
    question = ChangesQuestion(
        kinds=[get_root()],
        filters=VersionFilters(author=author),
        slice=span.cut_first(),
        after=TimelinePosition(LAST.updated_at, -1, "", -1),
        limit=51,
        field=field,
    )
    text, values = make_statement(get_root(), question)
    with connect_plainly() as plain:
        row = plain.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", values).fetchone()
    assert row is not None
    plan: dict[str, Any] = row[0][0]["Plan"]
    return plan


def list_nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from list_nodes(child)


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.plain_only("it checks the plan of a single PostgreSQL server")
def test_first_page_of_changes_uses_index_and_sorts_only_few_rows(
    tables: None, is_packed: bool
) -> None:
    day = T0.replace(hour=0)
    fill_day(day)
    if is_packed:
        with connect_plainly() as plain:
            pack_day(plain, get_root(), day.date())
            plain.execute(f"ANALYZE {get_root().table}")
    nodes = list(list_nodes(explain_first_page("robot", day + timedelta(hours=23))))
    for node in nodes:
        if node["Node Type"].endswith("Sort"):
            assert node["Plans"][0]["Actual Rows"] < 60  # a slice of 15 minutes has 53 versions
    indexes = {
        node["Index Name"]
        for node in list_nodes(explain_first_page("p7", day + timedelta(hours=1)))
        if "Index Name" in node
    }
    assert any(name.endswith("_author_updated_at_idx") for name in indexes)


@pytest.mark.plain_only("it checks the plan of a single PostgreSQL server")
def test_path_filter_reads_few_rows_of_a_document_with_many_versions(tables: None) -> None:
    """Without a limit, the filter would read all n rows of the document for each of n versions."""
    store, versions = Store(), 2 * field_filter.MOST_ROWS
    for number in range(versions):
        store.add("HOT", number, {"rate": number // (versions // 2)}, number / 100)
    query = ChangesQuery(
        filters=VersionFilters(since=minute(-1), until=minute(60), author="m.ivanov", path="/rate")
    )
    [touched] = [version for page in read_pages(query) for version in page.versions]
    assert touched.version == versions // 2
    plan = explain_first_page("m.ivanov", minute(10), field="rate")
    rows = [n["Actual Rows"] for n in list_nodes(plan) if n.get("Alias", "").startswith("same_")]
    assert 0 < max(rows) <= field_filter.MOST_ROWS + 1


@pytest.mark.plain_only("maintain makes no indexes on a cluster")
def test_maintain_adds_missing_indexes_of_changes_query_to_existing_days(tables: None) -> None:
    day = T0.replace(hour=0)
    fill_day(day)
    table = get_root().table
    with connect_plainly() as plain:
        assert change_indexes.find_missing(plain, [table]) == []
        for index in change_indexes.CHANGE_INDEXES:
            plain.execute(f"DROP INDEX {change_indexes.build_index_name(table, index)}")
        for command in change_indexes.build_commands(table):
            plain.execute(command)
        assert len(change_indexes.find_missing(plain, [table])) == 3
        outcome = StepResult()
        first_night = add_missing_indexes(plain, outcome, seconds=0)
        assert first_night == 1
        assert first_night + add_missing_indexes(plain, outcome) == 3
        assert (outcome.busy, outcome.broken) == ([], [])
        assert change_indexes.find_missing(plain, [table]) == []
        invalid = plain.execute("SELECT count(*) FROM pg_index WHERE NOT indisvalid").fetchone()
    assert invalid == (0,)
