"""Every source of versions returns the versions that a test generated and stored.

The tables are tested alone, and together with other sources that have some or all of the versions.
"""

import json
from collections.abc import Callable
from datetime import datetime
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from history.common import clock
from history.documents.record import ChangeType
from history.kinds.entities import (
    BY_NAME,
    ROOT,
    EntityKind,
    get_root,
)
from history.retention.archive.store import ArchiveStore as Files
from history.retention.archive.write import DayArchiver
from history.retention.packing import pack_day
from history.retention.plan import PartitionPolicy
from history.store.days import days
from history.store.days.window import Window
from history.store.versions import (
    FIRST,
    LAST,
    SourceAnswer,
    SourceRow,
    TimelinePosition,
    VersionKey,
    VersionRef,
)
from history.timeline.query import TimelineOrder, TimelineQuery, TimelineSort, VersionFilters
from history.timeline.sources.archive import ArchiveSource
from history.timeline.sources.merged import MergedSource, SupplementSource
from history.timeline.sources.old_service import OldServiceSource
from tests.db.partitioned import connect_plainly, execute_plans
from tests.db.store import Store, minute

TASK = BY_NAME["product-task"]
KINDS = [(get_root(), "A1"), (TASK, "T1"), (TASK, "T2")]
# How the versions of a document are sorted.
SORT_KEYS: dict[TimelineSort, Callable[[VersionKey], Any]] = {
    TimelineSort.VERSION: lambda key: key,
    TimelineSort.UPDATED_AT: lambda key: (key.updated_at, key.version),
}
AUTHORS = ["m.ivanov", "m.prygunov"]


class ExpectedVersion(NamedTuple):
    """A generated version, which every source must return."""

    entity: EntityKind
    id: str
    key: VersionKey
    author: str

    @property
    def sort_key(self) -> tuple[datetime, int, str, int]:
        kind = 0 if self.entity is ROOT else list(BY_NAME).index(self.entity.name)
        return (self.key.updated_at, kind, self.id, self.key.version)


def make_history(seed: int) -> list[ExpectedVersion]:
    """Return random versions of an application and its two tasks.

    Some versions have an earlier moment than a version with a lower number. Some numbers are used
    twice.
    """
    random = Random(seed)
    return [
        ExpectedVersion(
            kind,
            id,
            VersionKey(version, minute(version * 10 + random.randrange(25) + 30 * twin)),
            author,
        )
        for kind, id in KINDS
        for version in range(random.randrange(1, 7))
        for twin in range(random.choice([1, 1, 1, 2]))
        for author in [random.choice(AUTHORS)]
    ]


def drop_repeated_numbers(history: list[ExpectedVersion]) -> list[ExpectedVersion]:
    """Keep one version of each number, because the old service has only one."""
    return list({(version.id, version.key.version): version for version in history}.values())


def store_in_tables(store: Store, history: list[ExpectedVersion]) -> None:
    for version in history:
        data = {"of": version.id, "version": version.key.version}
        store.add(
            version.id,
            version.key.version,
            data,
            version.key.updated_at,
            entity=version.entity,
            author=version.author,
            application="A1",
        )


def store_in_old_service(history: list[ExpectedVersion]) -> OldServiceSource:
    """Return a source that has fetched these versions of the application A1 from an old service."""
    rows = [
        SourceRow(
            *version.key,
            int(ChangeType.UPDATE if version.key.version else ChangeType.CREATE),
            "top-crm",
            version.author,
            None if version.entity is ROOT else "A1",
            b'{"of": "old"}',
            version.id,
            version.entity,
            True,
        )
        for version in history
    ]
    old = OldServiceSource(lambda _subject, _seconds: rows, 5.0)
    assert old.load_shown_timeline(None, "A1")
    return old


def store_in_blocks(store: Store, history: list[ExpectedVersion]) -> None:
    """Store these versions in the tables, and pack the days of the versions."""
    places = {(version.entity, version.key.updated_at.date()) for version in history}
    with connect_plainly() as plain:
        for entity, day in places:
            days.create_partition(plain, entity.table, day)
        store_in_tables(store, history)
        for entity, day in places:
            pack_day(plain, entity, day)


def store_in_archive(store: Store, history: list[ExpectedVersion], folder: Path) -> ArchiveSource:
    """Store these versions, archive and drop their days, and return the archive."""
    with connect_plainly() as plain:
        for version in history:
            days.create_partition(plain, version.entity.table, version.key.updated_at.date())
    store_in_tables(store, history)
    now = clock.now()
    policy = PartitionPolicy(Window.at(now, 1, 0), now.date())
    outcome = execute_plans(policy, archiver=DayArchiver(Files(str(folder))))
    assert outcome.dropped
    return ArchiveSource(str(folder))


@pytest.fixture(params=range(4))
def history(request: pytest.FixtureRequest) -> list[ExpectedVersion]:
    return make_history(request.param)


SOURCES = (
    "tables",
    "blocks",
    "blocks, late",
    "old service",
    "archive",
    "tables, old",
    "blocks, old",
    "tables, archive",
    "all",
)


@pytest.fixture(params=SOURCES)
def source(
    request: pytest.FixtureRequest,
    tables: None,
    history: list[ExpectedVersion],
    tmp_path: Path,
) -> MergedSource:
    """Return a source that merges the sources named in the parameter.

    Each version of the history is in one or two of these sources.
    """
    store, supplements = Store(), list[SupplementSource]()
    if "old" in request.param or request.param == "all":
        history[:] = drop_repeated_numbers(history)
    if "archive" in request.param or request.param == "all":
        part = history if request.param == "archive" else history[::3]
        supplements.append(store_in_archive(store, part, tmp_path))
    if "old" in request.param or request.param == "all":
        supplements.append(store_in_old_service(history))
    if request.param == "tables":
        store_in_tables(store, history)
    elif "blocks" in request.param:
        store_in_blocks(store, history if request.param == "blocks" else history[::2])
        if request.param == "blocks, late":
            store_in_tables(store, history[1::2])
    elif request.param == "tables, archive":
        store_in_tables(
            store, [version for index, version in enumerate(history) if index % 3 or index % 2]
        )
    elif "," in request.param or request.param == "all":
        store_in_tables(store, history[::2])
    return MergedSource(supplements)


def unseal(answer: SourceAnswer[Any]) -> Any:
    """Return the content of a closed answer, as the policy releases it to a viewer who may see
    everything."""
    if isinstance(answer.unreleased, Exception):
        raise answer.unreleased
    return answer.unreleased


def test_every_source_returns_expected_pages_of_a_document(
    source: MergedSource, history: list[ExpectedVersion]
) -> None:
    filters = [
        VersionFilters(),
        VersionFilters(author=AUTHORS[0]),
        VersionFilters(since=minute(15), until=minute(45)),
    ]
    for (kind, id), selection, sort, order in product(KINDS, filters, TimelineSort, TimelineOrder):
        every = [
            version.key
            for version in history
            if version.id == id and is_selected(selection, version)
        ]
        expected = sorted(every, key=SORT_KEYS[sort], reverse=order is TimelineOrder.DESC)
        keys: list[VersionKey] = []
        after = None
        query = TimelineQuery(entity=kind, id=id, filters=selection, sort=sort, order=order)
        while read := unseal(source.fetch_page(kind, query, after, 2)).rows:
            keys += [row.key for row in read]
            after = TimelinePosition.from_ref(read[-1].ref)
        assert keys == expected


def is_selected(filters: VersionFilters, version: ExpectedVersion) -> bool:
    since, until = filters.since or FIRST.updated_at, filters.until or LAST.updated_at
    return since <= version.key.updated_at < until and filters.author in (None, version.author)


def test_every_source_returns_expected_version_keys_and_versions(
    source: MergedSource, history: list[ExpectedVersion]
) -> None:
    for kind, id in KINDS:
        own_keys = sorted(version.key for version in history if version.id == id)
        assert unseal(source.fetch_keys(kind, [id, "none"])) == {id: own_keys}
        refs = [VersionRef(kind, id, key) for key in [*own_keys, VersionKey(99, minute(0))]]
        rows, unread = unseal(source.fetch_versions(refs))
        assert (sorted(row.key for row in rows), unread) == (own_keys, [])
        assert {row.ref for row in rows} == set(refs[:-1])
        assert {json.loads(row.data)["of"] for row in rows} <= {id, "old"}
        assert source.fetch_owners(kind, [id, "none"]) == {id: {"A1"}}
        for below in ([], [own_keys[0]], [own_keys[-1], LAST]):
            keys, newest = unseal(source.fetch_newest(kind, id, below, 2))
            assert keys == own_keys
            if not source.supplements:
                assert {row.key for row in newest} == select_newest(own_keys, below, 2)
            else:  # only the tables select; the other sources return all their versions
                assert {row.key for row in newest} <= set(own_keys)
    assert unseal(source.fetch_newest(TASK, "none", [LAST], 2)) == ([], [])


def select_newest(keys: list[VersionKey], below: list[VersionKey], count: int) -> set[VersionKey]:
    """Return the newest `count` keys at or below each limit in `below`, so up to `count` per limit.

    A key is at or below a limit if the number and the moment of the key are not higher.
    """
    return {
        key
        for limit in below
        for key in sorted(
            key
            for key in keys
            if key.version <= limit.version and key.updated_at <= limit.updated_at
        )[-count:]
    }


OF_APPLICATIONS = [name for name in SOURCES if "archive" not in name and name != "all"]


# The archive cannot read whole applications.
@pytest.mark.parametrize("source", OF_APPLICATIONS, indirect=True)
def test_every_source_returns_expected_pages_of_an_application(
    source: MergedSource, history: list[ExpectedVersion]
) -> None:
    every = {
        (kind, id): sorted(version.key for version in history if version.id == id)
        for kind, id in KINDS
    }
    assert unseal(source.fetch_members("A1")) == every
    assert unseal(source.fetch_members("none")) == {}
    for order in TimelineOrder:
        expected = sorted(
            (version.sort_key for version in history), reverse=order is TimelineOrder.DESC
        )
        positions: list[TimelinePosition] = []
        while True:
            after = positions[-1] if positions else None
            query = TimelineQuery(id="A1", order=order)
            page, keys = unseal(source.fetch_application_page(query, after, 3))
            if not page:
                break
            positions += map(TimelinePosition.from_ref, page)
            assert keys == {(kind, id): every[kind, id] for kind, id, _ in page}
        assert positions == expected
