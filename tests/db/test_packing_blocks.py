"""Packed days with large documents, with blocks that overlap in time, and with new field names."""

from datetime import timedelta
from random import Random

import pytest

from history.kinds.entities import get_root
from history.models import PackDictionary
from history.retention.packing import pack_day
from history.store.days import days
from history.store.versions import VersionKey, VersionRef
from history.timeline.sources.tables import TableSource
from tests.db.partitioned import connect_plainly
from tests.db.store import T0, Store, minute

DAY = T0.date()


def fetch_one(key: VersionKey) -> None:
    """Fetch a version by version key, and check that one SQL statement returns it."""
    rows, unread = TableSource().fetch_versions([VersionRef(get_root(), "A1", key)])
    assert ([row.key for row in rows], unread) == ([key], [])


@pytest.fixture
def store(tables: None) -> Store:
    with connect_plainly() as plain:
        days.create_partition(plain, get_root().table, DAY)
    return Store()


def pack_root_day() -> None:
    with connect_plainly() as plain:
        pack_day(plain, get_root(), DAY)


def test_reading_small_version_does_not_read_large_snapshot_of_same_moment(store: Store) -> None:
    store.add("A1", 1, {"text": "x" * 5_000_000}, minute(0))
    store.add("A1", 2, {"text": 2}, minute(0))
    store.add("A1", 3, {"text": 3}, minute(1))
    pack_root_day()
    fetch_one(VersionKey(2, minute(0)))


def test_reading_one_version_reads_only_one_block_when_blocks_overlap_in_time(
    store: Store,
) -> None:
    """Higher numbers have earlier moments here, so the spans of twenty blocks overlap."""
    for number in range(60):
        moment = minute((0, 100, 200)[number % 3] + number // 3)
        store.add("A1", number, {"text": "y" * 80_000, "number": number}, moment)
    pack_root_day()
    fetch_one(VersionKey(58, minute(119)))


def test_packed_day_gets_new_dictionary_when_documents_have_new_field_names(store: Store) -> None:
    draw, next_day = Random(1), DAY + timedelta(days=1)
    with connect_plainly() as plain:
        days.create_partition(plain, get_root().table, next_day)
        for first_minute, word, size in ((0, "one", 30), (1440, "another", 1500)):
            for number in range(600):
                document = {f"{word}{key}": f"{word} text of {key}" for key in range(40)}
                document["own"] = draw.randbytes(size).hex()
                store.add(f"{word}{number}", 1, document, minute(first_minute + number % 60))
        plain.execute(f"ANALYZE {get_root().table}")
        pack_day(plain, get_root(), DAY)
        pack_day(plain, get_root(), next_day)
    assert PackDictionary.objects.count() == 2
