"""Titles of documents: lists and headings show them without reading whole snapshots."""

import json
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.test import Client

from history import timeline
from history.documents.jsonb import to_store
from history.documents.record import ChangeType
from history.documents.top_level_fields import FIELD_BYTES, select_fields
from history.kinds.entities import get_root
from history.models import FieldLabel, SearchKey
from history.retention.packing import pack_day
from history.store.days import days
from history.timeline.sources.store_lists import StoreLists
from tests.db.partitioned import connect_plainly
from tests.db.screens import read_text
from tests.db.store import HOST, T0, Store

MB = 1024 * 1024
SIZE = 3 * MB
FIELDS = ("name", "status", "absent")


@contextmanager
def limit_memory(size: int) -> Iterator[None]:
    """Check that Python's memory grows by less than `size` bytes during the `with` block."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        yield
        _, peak = tracemalloc.get_traced_memory()
        assert peak - before < size
    finally:
        tracemalloc.stop()


def make_large_document(name: str, number: int, size: int = SIZE) -> str:
    """Return the JSON text of a large document that PostgreSQL cannot compress well."""
    values = ((n, n * 7919 % 1_000_003) for n in range(size // 24))
    items = ",".join(f'{{"pid":"p{n}","v":1{value}{number}}}' for n, value in values)
    return f'{{"name":"{name}","status":"draft","clientId":"C5","items":[{items}]}}'


@pytest.fixture
def large_store(store: Store) -> Store:
    """Store an application and its child, each with two large versions."""
    for number in range(2):
        store.add("A1", number, make_large_document(f"Ипотека {number}", number), number)
        store.add(
            "R1",
            number,
            make_large_document(f"Рожкова {number}", number),
            number + 5,
            entity="participant-role",
        )
    return store


@pytest.mark.django_db
def test_start_page_takes_little_memory_when_large_documents_were_opened(
    large_store: Store, support: Client
) -> None:
    session = support.session
    session["opened"] = [["product-instance", "A1"], ["participant-role", "R1"]]
    session.save()
    support.get("/admin/login/")  # loads what a process loads once
    with limit_memory(SIZE // 2):
        page_text = read_text(support.get("/admin/"))
    assert "Ипотека 1" in page_text
    assert "Рожкова 1" in page_text
    assert "draft" in page_text


@pytest.mark.django_db
@pytest.mark.parametrize(
    "address", ["/admin/history/?q=A1+R1", "/admin/client/?q=C5&week=2020-W02"]
)
def test_list_of_titles_takes_little_memory_when_documents_are_large(
    large_store: Store, support: Client, address: str
) -> None:
    SearchKey.objects.create(
        value="C5", name="clientId", entity="participant-role", id="R1", day=T0.date()
    )
    support.get("/admin/login/")
    with limit_memory(SIZE // 2):
        page_text = read_text(support.get(address))
    assert "Ипотека 1" in page_text


@pytest.mark.django_db
def test_start_page_says_what_changed_in_small_documents(store: Store, support: Client) -> None:
    for number in range(2):
        store.add("A1", number, {"name": "Ипотека", "rate": f"1{number}.5"}, number)
    support.get("/admin/history/product-instance/A1/")
    assert "from 10.5 % to 11.5 %" in read_text(support.get("/admin/"))


@pytest.mark.django_db
def test_title_is_masked_when_only_titles_are_read(store: Store, support: Client) -> None:
    FieldLabel.objects.create(path="/name", russian="Название", sensitive=True)
    store.add("A1", 0, {"name": "Тайна", "status": "draft"}, 0)
    reader = timeline.make_host_reader().limit_to_fields(FIELDS)
    [(_, data)] = timeline.fetch_newest_snapshots(reader, [(get_root(), "A1")]).items()
    assert isinstance(data, dict)
    assert str(data["name"]).startswith("masked:")
    assert "Тайна" not in read_text(support.get("/admin/history/?q=A1"))


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"name": "Ипотека", "status": None, "items": [1]}, {"name": "Ипотека", "status": None}),
        ({"name": {"ru": "Ипотека"}}, {"name": {"ru": "Ипотека"}}),
        ({"name": "x" * (FIELD_BYTES + 1), "status": 1.50}, {"status": 1.5}),
        ({"items": []}, {}),
        ({}, {}),
        ([{"name": 1}], [{"name": 1}]),
        ('"name"', "name"),
        (
            to_store(b'{"name":"a\\u0000","items":[1]}').decode(),
            {"name": "a\0"},
        ),
    ],
)
def test_reader_limited_to_fields_returns_only_those_fields_of_snapshots(
    store: Store, document: object, expected: object
) -> None:
    store.add("A1", 0, document, 0)
    reader = HOST.limit_to_fields(FIELDS)
    assert timeline.fetch_newest_version(reader, get_root(), "A1").data == expected
    assert timeline.fetch_newest_snapshots(reader, [(get_root(), "A1")]) == {
        (get_root(), "A1"): expected
    }
    [newest] = StoreLists().fetch_newest_snapshots(get_root(), ["A1"])
    assert json.loads(select_fields(newest.data, FIELDS)) == expected


@pytest.mark.django_db
def test_reader_limited_to_title_fields_recognises_deletion_that_has_no_snapshot(
    store: Store,
) -> None:
    store.add("A1", 0, {"name": "Ипотека"}, 0)
    store.add("A1", 1, None, 1, type=ChangeType.DELETE)
    reader = HOST.limit_to_fields(FIELDS)
    assert timeline.fetch_newest_version(reader, get_root(), "A1").data is None
    assert timeline.fetch_newest_snapshots(reader, [(get_root(), "A1")]) == {
        (get_root(), "A1"): {"name": "Ипотека"}
    }


@pytest.mark.django_db
def test_size_of_newest_snapshot_is_measured_as_size_of_larger_of_two_newest_snapshots(
    store: Store,
) -> None:
    """If a snapshot is larger than `max_bytes`, the result can be any number above `max_bytes`."""
    store.add("A1", 0, {"text": "x" * 100_000}, 0)
    store.add("A1", 1, {"text": "y"}, 1)
    assert 100_000 < measure_newest("A1", 200_000) < 200_000
    assert measure_newest("A1", 50_000) > 50_000
    store.add("A1", 2, {"text": "y"}, 2)
    assert measure_newest("A1", 50_000) < 100
    assert measure_newest("B1", 50_000) == 0


def measure_newest(id: str, limit: int) -> int:
    return HOST.store_lists.measure_newest_snapshots([(get_root(), id)], limit)[get_root(), id]


def test_title_of_packed_document_is_read(tables: None) -> None:
    with connect_plainly() as plain:
        days.create_partition(plain, get_root().table, T0.date())
        store = Store()
        for number in range(3):
            store.add("A1", number, {"name": f"Ипотека {number}", "items": [number]}, number)
        pack_day(plain, get_root(), T0.date())
    reader = HOST.limit_to_fields(FIELDS)
    assert timeline.fetch_newest_version(reader, get_root(), "A1").data == {"name": "Ипотека 2"}
    assert timeline.fetch_newest_snapshots(reader, [(get_root(), "A1")]) == {
        (get_root(), "A1"): {"name": "Ипотека 2"}
    }
    assert timeline.fetch_newest_version(HOST.omit_snapshots(), get_root(), "A1").data == {}
    assert (
        HOST.store_lists.measure_newest_snapshots([(get_root(), "A1")], 1_000)[get_root(), "A1"] > 0
    )
