"""Every source answers as a model in memory does: the tables, and the tables with the old service
that has the rest of the same history."""

from collections.abc import Callable
from datetime import datetime
from itertools import product
from random import Random
from typing import Any, NamedTuple

import pytest

from history.entities import BY_NAME, ENTITIES, ROOT, Entity, root
from history.fallback import Asked, OldVersion, Service, Subject
from history.record import ChangeType
from history.timeline.query import Filters, Order, Query, Sort
from history.timeline.row import FIRST, LAST, Key
from history.timeline.sources.merged import Merged
from history.timeline.sources.old import OldService
from history.timeline.sources.source import Source
from history.timeline.sources.tables import Tables
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


def model(seed: int) -> list[Made]:
    """A history of an application with two tasks; times follow numbers only mostly."""
    random = Random(seed)
    return [
        Made(kind, id, Key(version, minute(version * 10 + random.randrange(25))), author)
        for kind, id in KINDS
        for version in range(random.randrange(1, 7))
        for author in [random.choice(AUTHORS)]
    ]


def store_it(store: Store, made: Made) -> None:
    data = {"of": made.id, "version": made.key.version}
    store.add(
        *(made.id, made.key.version, data, made.key.updated_at),
        entity=made.entity,
        author=made.author,
        application="A1",
    )


def old_version(made: Made) -> OldVersion:
    return OldVersion(
        *(made.entity, made.id, made.key.version, made.key.updated_at),
        int(ChangeType.UPDATE if made.key.version else ChangeType.CREATE),
        *("top-crm", made.author, None if made.entity is ROOT else "A1", b'{"of": "old"}'),
    )


def asked(found: list[OldVersion], monkeypatch: pytest.MonkeyPatch) -> OldService:
    """An old service has these versions, and was asked for the application."""

    def fetch(_service: Service, subject: Subject, _seconds: float) -> list[OldVersion]:
        return found

    monkeypatch.setattr("history.fallback.client.fetch", fetch)
    old = OldService(Asked(Service("http://old", 5.0)))
    assert old.want_application("A1")
    return old


@pytest.fixture(params=range(6))
def history(request: pytest.FixtureRequest) -> list[Made]:
    return model(request.param)


@pytest.fixture(params=["tables", "merged alone", "merged"])
def source(
    request: pytest.FixtureRequest,
    store: Store,
    history: list[Made],
    monkeypatch: pytest.MonkeyPatch,
) -> Source:
    """Merged: the store has every second version, the old service has all."""
    if request.param != "merged":
        for made in history:
            store_it(store, made)
        return Tables() if request.param == "tables" else Merged(Tables(), OldService())
    for made in history[::2]:
        store_it(store, made)
    return Merged(Tables(), asked([old_version(made) for made in history], monkeypatch))


def test_pages_of_a_document(source: Source, history: list[Made]) -> None:
    filters = [Filters(), Filters(author=AUTHORS[0]), Filters(since=minute(15), until=minute(45))]
    for (kind, id), wanted, sort, order in product(KINDS, filters, Sort, Order):
        every = [made.key for made in history if made.id == id and fits(wanted, made)]
        expected = sorted(every, key=PLACES[sort], reverse=order is Order.DESC)
        found: list[Key] = []
        after = LAST if order is Order.DESC else FIRST
        query = Query(entity=kind, id=id, filters=wanted, sort=sort, order=order)
        while read := source.page(query, after, 2).rows:
            found += [row.key for row in read]
            after = found[-1]
        assert found == expected


def fits(filters: Filters, made: Made) -> bool:
    since, until = filters.since or FIRST.updated_at, filters.until or LAST.updated_at
    return since <= made.key.updated_at < until and filters.author in (None, made.author)


def test_keys_and_documents(source: Source, history: list[Made]) -> None:
    for kind, id in KINDS:
        mine = sorted(made.key for made in history if made.id == id)
        assert source.keys(kind, [id, "none"]) == {id: mine}
        wanted = [(id, key) for key in [*mine, Key(99, minute(0))]]
        found, unread = source.first_bodies(kind, wanted)
        assert (sorted(found), unread) == (wanted[:-1], [])
        assert source.exists(kind, id)
        assert source.owners(kind, [id, "none"]) == {id: {"A1"}}
        assert not source.exists(kind, "none")


def test_an_application(source: Source, history: list[Made]) -> None:
    for kind in ENTITIES:
        ids = {made.id for made in history if made.entity is kind}
        assert source.belongs(kind, "A1") is bool(ids)
        assert not source.belongs(kind, "none")
        if kind.parent is not None:
            assert set(source.children(kind, "A1")) == ids

    def place(made: Made) -> tuple[datetime, int, str, int]:
        kind = ENTITIES.index(made.entity)
        return (made.key.updated_at, kind, made.id, made.key.version)

    for order in Order:
        expected = sorted(map(place, history), reverse=order is Order.DESC)
        found: list[tuple[datetime, int, str, int]] = []
        while read := source.of_application(
            "A1", Filters(), order, found[-1] if found else None, 3
        ):
            found += [place(Made(kind, id, key, "")) for kind, id, key in read]
        assert found == expected
