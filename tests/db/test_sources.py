"""Every source answers as a model in memory does: the tables, and the tables with others that have
a part of the same history, or all of it."""

import json
from collections.abc import Callable
from datetime import datetime
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from history.archive.store import Store as Files
from history.archive.write import DayArchiver
from history.base import clock
from history.daily import days
from history.daily.window import Window
from history.entities import BY_NAME, ROOT, Entity, root
from history.packing import pack
from history.partitions.maintain import maintain
from history.partitions.plan import Policy
from history.record import ChangeType
from history.timeline.query import Filters, Order, Query, Sort
from history.timeline.sources.archive import Archive
from history.timeline.sources.merged import Merged, Source, Supplement
from history.timeline.sources.old_service import OldService
from history.timeline.sources.tables import Tables
from history.versions import FIRST, LAST, Key, Place, VersionRow
from tests.db.partitioned import raw
from tests.db.store import Store, minute

TASK = BY_NAME["product-task"]
KINDS = [(root(), "A1"), (TASK, "T1"), (TASK, "T2")]
PLACES: dict[Sort, Callable[[Key], Any]] = {
    Sort.VERSION: lambda key: key,
    Sort.UPDATED_AT: lambda key: (key.updated_at, key.version),
}
AUTHORS = ["m.ivanov", "m.prygunov"]


class Made(NamedTuple):
    """A version of the model."""

    entity: Entity
    id: str
    key: Key
    author: str

    @property
    def place(self) -> tuple[datetime, int, str, int]:
        kind = 0 if self.entity is ROOT else list(BY_NAME).index(self.entity.name)
        return (self.key.updated_at, kind, self.id, self.key.version)


def model(seed: int) -> list[Made]:
    """A history of an application with two tasks; times follow numbers only mostly, and a number
    may be given twice."""
    random = Random(seed)
    return [
        Made(
            kind, id, Key(version, minute(version * 10 + random.randrange(25) + 30 * twin)), author
        )
        for kind, id in KINDS
        for version in range(random.randrange(1, 7))
        for twin in range(random.choice([1, 1, 1, 2]))
        for author in [random.choice(AUTHORS)]
    ]


def without_twins(history: list[Made]) -> list[Made]:
    """The old service has one version of a number."""
    return list({(made.id, made.key.version): made for made in history}.values())


def in_tables(store: Store, history: list[Made]) -> None:
    for made in history:
        data = {"of": made.id, "version": made.key.version}
        store.add(
            *(made.id, made.key.version, data, made.key.updated_at),
            entity=made.entity,
            author=made.author,
            application="A1",
        )


def in_old_service(history: list[Made]) -> OldService:
    """An old service has these versions, and was asked for the application."""
    found = [
        VersionRow(
            *made.key,
            int(ChangeType.UPDATE if made.key.version else ChangeType.CREATE),
            *("top-crm", made.author, None if made.entity is ROOT else "A1", b'{"of": "old"}'),
            *(made.id, made.entity, True),
        )
        for made in history
    ]
    old = OldService(lambda _subject, _seconds: found, 5.0)
    assert old.want(None, "A1")
    return old


def in_blocks(store: Store, history: list[Made]) -> None:
    """These versions are in the tables, whose days are packed."""
    places = {(made.entity, made.key.updated_at.date()) for made in history}
    with raw() as plain:
        for entity, day in places:
            days.create(plain, entity.table, day)
        in_tables(store, history)
        for entity, day in places:
            pack(plain, entity, day)


def in_archive(store: Store, history: list[Made], folder: Path) -> Archive:
    """These versions have left the tables, whose days are archived."""
    with raw() as plain:
        for made in history:
            days.create(plain, made.entity.table, made.key.updated_at.date())
    in_tables(store, history)
    now = clock.now()
    policy = Policy(Window.at(now, 1, 0), now.date())
    outcome = maintain(policy, archiver=DayArchiver(Files(str(folder))))
    assert outcome.dropped
    return Archive(str(folder))


@pytest.fixture(params=range(4))
def history(request: pytest.FixtureRequest) -> list[Made]:
    return model(request.param)


SOURCES = (
    *("tables", "blocks", "blocks, late", "old service", "archive"),
    *("tables, old", "blocks, old", "tables, archive", "all"),
)


@pytest.fixture(params=SOURCES)
def source(
    request: pytest.FixtureRequest,
    tables: None,
    history: list[Made],
    tmp_path: Path,
) -> Source:
    """The history in these; where it is in several, each version in one of them or in two."""
    store, others = Store(), list[Supplement]()
    if "old" in request.param or request.param == "all":
        history[:] = without_twins(history)
    if "archive" in request.param or request.param == "all":
        part = history if request.param == "archive" else history[::3]
        others.append(in_archive(store, part, tmp_path))
    if "old" in request.param or request.param == "all":
        others.append(in_old_service(history))
    if request.param == "tables":
        in_tables(store, history)
    elif "blocks" in request.param:
        in_blocks(store, history if request.param == "blocks" else history[::2])
        if request.param == "blocks, late":
            in_tables(store, history[1::2])
    elif request.param == "tables, archive":
        in_tables(store, [made for at, made in enumerate(history) if at % 3 or at % 2])
    elif "," in request.param or request.param == "all":
        in_tables(store, history[::2])
    return Merged(others) if others else Tables()


def test_pages_of_a_document(source: Source, history: list[Made]) -> None:
    filters = [Filters(), Filters(author=AUTHORS[0]), Filters(since=minute(15), until=minute(45))]
    for (kind, id), wanted, sort, order in product(KINDS, filters, Sort, Order):
        every = [made.key for made in history if made.id == id and fits(wanted, made)]
        expected = sorted(every, key=PLACES[sort], reverse=order is Order.DESC)
        found: list[Key] = []
        after = None
        query = Query(entity=kind, id=id, filters=wanted, sort=sort, order=order)
        while read := source.page(kind, query, after, 2).rows:
            found += [row.key for row in read]
            after = Place.of(read[-1].located)
        assert found == expected


def fits(filters: Filters, made: Made) -> bool:
    since, until = filters.since or FIRST.updated_at, filters.until or LAST.updated_at
    return since <= made.key.updated_at < until and filters.author in (None, made.author)


def test_keys_and_documents(source: Source, history: list[Made]) -> None:
    for kind, id in KINDS:
        mine = sorted(made.key for made in history if made.id == id)
        assert source.keys(kind, [id, "none"]) == {id: mine}
        wanted = [(kind, id, key) for key in [*mine, Key(99, minute(0))]]
        rows, unread = source.documents(wanted)
        assert (sorted(row.key for row in rows), unread) == (mine, [])
        assert {row.located for row in rows} == set(wanted[:-1])
        assert {json.loads(row.data)["of"] for row in rows} <= {id, "old"}
        assert source.owners(kind, [id, "none"]) == {id: {"A1"}}
        for below in ([], [mine[0]], [mine[-1], LAST]):
            keys, newest = source.newest(kind, id, below, 2)
            assert keys == mine
            if isinstance(source, Tables):
                assert {row.key for row in newest} == highest(mine, below, 2)
            else:  # of what the tables have; others have theirs in memory
                assert {row.key for row in newest} <= set(mine)
    assert source.newest(TASK, "none", [LAST], 2) == ([], [])


def highest(keys: list[Key], below: list[Key], count: int) -> set[Key]:
    """The highest keys up to each of these numbers and moments, this many of each."""
    return {
        key
        for most in below
        for key in sorted(
            key for key in keys if key.version <= most.version and key.updated_at <= most.updated_at
        )[-count:]
    }


OF_APPLICATIONS = [each for each in SOURCES if "archive" not in each and each != "all"]


# The archive is asked for one document only.
@pytest.mark.parametrize("source", OF_APPLICATIONS, indirect=True)
def test_an_application(source: Source, history: list[Made]) -> None:
    every = {
        (kind, id): sorted(made.key for made in history if made.id == id) for kind, id in KINDS
    }
    assert source.members("A1") == every
    assert source.members("none") == {}
    for order in Order:
        expected = sorted((made.place for made in history), reverse=order is Order.DESC)
        found: list[Place] = []
        while True:
            after = found[-1] if found else None
            page, keys = source.of_application(Query(id="A1", order=order), after, 3)
            if not page:
                break
            found += map(Place.of, page)
            assert keys == {(kind, id): every[kind, id] for kind, id, _ in page}
        assert found == expected
