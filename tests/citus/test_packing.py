"""Packed days of a distributed installation."""

from typing import Any

import pytest
from django.db import connection

from history.retention import packing
from history.store.days import days
from history.store.days.canonical import Connection
from history.store.days.table_swap import ChangedMeanwhileError
from tests.citus.again import own_labels, tables, transactional_db
from tests.citus.cluster import Citus
from tests.db.partitioned import plain
from tests.db.test_packing import DAY, ROOT, TASK, fill, read_blocks, read_rows

__all__ = ["own_labels", "plain", "tables", "transactional_db"]

pytestmark = pytest.mark.usefixtures("tables")


def insert(plain: Connection, id: str) -> None:
    plain.execute(
        f"INSERT INTO {ROOT.table} (id, version, data, updated_at, client_id, type)"
        " VALUES (%s, 1, '{}', %s, 'x', 1)", [id, f"{DAY} 12:00:00+00"]
    )  # fmt: skip


def test_pack_and_unpack_keep_every_version(citus: Citus, plain: Connection) -> None:
    fill(plain)
    before = {entity: read_rows(plain, entity) for entity in (ROOT, TASK)}
    for entity in (ROOT, TASK):
        packed = packing.pack_day(plain, entity, DAY)
        assert packed.rows == len(before[entity])
        assert read_blocks(plain, entity) != []
        assert read_rows(plain, entity) == before[entity]
        assert days.is_packed(plain, entity.table, DAY)
    [(shards,)] = citus.fetch_rows(
        "SELECT count(*) FROM pg_dist_shard WHERE logicalrelid = %s::regclass",
        [days.build_partition_name(ROOT.table, DAY)],
    )
    assert shards == 4
    insert(plain, "late")
    packing.pack_day(plain, ROOT, DAY)
    for entity in (ROOT, TASK):
        packing.unpack_day(plain, entity, DAY)
        assert read_blocks(plain, entity) == []
        assert len(read_rows(plain, entity)) == len(before[entity]) + (entity is ROOT)
        assert not days.is_packed(plain, entity.table, DAY)


@pytest.mark.parametrize("change", ["insert", "delete"])
def test_pack_leaves_day_whose_rows_change_meanwhile(
    change: str, citus: Citus, plain: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(plain)
    insert(plain, "first")
    before = read_rows(plain, ROOT)
    replace_table = days.replace_table

    def replace(*arguments: Any) -> None:
        with citus.connect() as other_session:
            if change == "insert":
                insert(other_session, "second")
            else:
                other_session.execute(f"DELETE FROM {ROOT.table} WHERE id = 'first'")
        replace_table(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(days, "replace_table", replace)
        with pytest.raises(ChangedMeanwhileError, match="came, went or were changed"):
            packing.pack_day(plain, ROOT, DAY)
    assert read_blocks(plain) == []
    expected = len(before) + (1 if change == "insert" else -1)
    assert len(read_rows(plain, ROOT)) == expected
    assert packing.pack_day(plain, ROOT, DAY).rows == expected
    connection.close()
