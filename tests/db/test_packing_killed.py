"""No version is lost, doubled or changed if packing is killed between any two statements."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection as django_connection

from history.kinds.entities import ROOT
from history.models import SealedDay
from history.retention import packing
from history.store import distribution
from history.store.blocks.codec import CanonicalRow
from history.store.days import days
from history.store.days.canonical import stream_versions
from tests.db.ingested import Ingested
from tests.db.partitioned import (
    TABLE,
    connect_plainly,
    list_partition_names,
    pack_finished_days,
    record_all_topics_as_read,
)
from tests.db.store import Store
from tests.db.test_days_killed_anywhere import kill_everywhere
from tests.messages import NOW, SOURCE, make_value

pytestmark = pytest.mark.usefixtures("tables")
MOMENT = NOW.replace(hour=12, minute=0, second=0) - timedelta(days=20)
DAY = MOMENT.date()
NAME = days.build_partition_name(TABLE, DAY)
Rewrite = Callable[..., object]


def read_versions() -> list[CanonicalRow]:
    with connect_plainly() as plain:
        return list(stream_versions(plain, ROOT, days.locate_day(plain, TABLE, DAY).child))


def bind_to_day(rewrite: Rewrite) -> Callable[[], None]:
    """Return a function that packs or unpacks the day on Django's connection."""

    def act() -> None:
        django_connection.ensure_connection()
        rewrite(django_connection.connection, ROOT, DAY)

    return act


def is_packed() -> bool:
    """Return whether the table has blocks, and check that `SealedDay.packed_at` says the same."""
    with connect_plainly() as plain:
        cursor = plain.execute(f"SELECT EXISTS (SELECT 1 FROM {NAME} WHERE packed IS NOT NULL)")
        blocks = cursor.fetchone() == (True,)
    marked = SealedDay.objects.filter(day=DAY, packed_at__isnull=False).exists()
    assert blocks is marked
    return blocks


def maintain(*_: Any) -> None:
    assert pack_finished_days(NOW.date()).packed == [NAME]


@pytest.mark.parametrize("rewrite", [maintain, packing.unpack_day])
def test_pack_killed_between_any_two_statements_loses_nothing(rewrite: Rewrite) -> None:
    record_all_topics_as_read()
    with connect_plainly() as plain:
        days.create_partition(plain, TABLE, DAY)
        for id in "abc":
            for version in range(4):
                moment = MOMENT + timedelta(minutes=version)
                Store().add(id, version, {"of": id, "n": version}, moment)
        if rewrite is packing.unpack_day:
            packing.pack_day(plain, ROOT, DAY)
        is_cluster = distribution.is_distributed_table(plain, TABLE)
    expected, before = read_versions(), is_packed()
    assert len(expected) == 12
    killed = 0
    for _ in kill_everywhere(bind_to_day(rewrite)):
        assert (read_versions(), list_partition_names()) == (expected, [NAME])
        if is_packed() is not before:
            # The swap was committed. Only `maintain` and a cluster run statements after it.
            assert rewrite is maintain or is_cluster
            break
        killed += 1
    assert (read_versions(), is_packed(), list_partition_names()) == (expected, not before, [NAME])
    assert killed > 15


def test_message_after_killed_pack_is_stored_once(ingested: Ingested) -> None:
    def make_old_message(version: int) -> bytes:
        moment = (MOMENT + timedelta(minutes=version)).replace(tzinfo=None).isoformat()
        return make_value(id="a", version=version, updatedAt=moment)

    ingested.write(*map(make_old_message, range(5)))
    next_version, rows = 5, read_versions()
    for _ in kill_everywhere(bind_to_day(packing.pack_day)):
        result = ingested.write(
            make_old_message(next_version), make_old_message(next_version - 1), make_old_message(0)
        )
        assert (result.stored[SOURCE], result.repeated[SOURCE]) == (1, 2)
        next_version, before = next_version + 1, rows
        rows = read_versions()
        assert rows[:-1] == before
        assert [row[1] for row in rows] == list(range(next_version))
    assert is_packed()
    result = ingested.write(*map(make_old_message, range(next_version + 1)))
    assert (result.stored[SOURCE], result.repeated[SOURCE]) == (1, next_version)
