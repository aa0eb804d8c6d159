"""On a cluster, a table that an earlier release created without block columns gets them."""

from history.kinds.entities import get_root
from history.store import kind_tables
from history.store.blocks.queries import BLOCK_COLUMNS
from tests.citus.cluster import Citus, disconnect


def test_distributed_table_of_earlier_release_gets_the_block_columns(distributed: Citus) -> None:
    table = get_root().table
    drops = ", ".join(f"DROP COLUMN {name}" for name in BLOCK_COLUMNS)
    distributed.connect().execute(f"ALTER TABLE {table} {drops}")
    disconnect()
    kind_tables.create_missing(using="default")
    shards = distributed.fetch_rows(
        "SELECT DISTINCT result FROM run_command_on_shards(%s, $$SELECT attstorage::text"
        " FROM pg_attribute WHERE attrelid = '%%s'::regclass AND attname = 'packed'$$)",
        [table],
    )
    assert shards == [("e",)]
    assert distributed.fetch_rows(
        "SELECT attstorage::text FROM pg_attribute WHERE attrelid = %s::regclass"
        " AND attname = 'packed'",
        [table],
    ) == [("e",)]
    kind_tables.create_missing(using="default")
