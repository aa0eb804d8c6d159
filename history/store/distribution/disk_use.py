"""Measures distributed tables on all nodes. On the coordinator itself they are empty."""

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, LiteralString, NamedTuple

import psycopg
from psycopg import sql

from history.store import distribution

# Measures the shards on one node. The name of a shard is the table's name with a number. The text
# for DiskUse.mark has counts of inserted rows, which PostgreSQL may update up to a minute after a
# commit. A crash or failover resets the counts: then the other parts of the text differ. PostgreSQL
# returns NULL as the size of a shard that a swap drops while it is measured; it counts as empty.
_OF_NODE: Final[LiteralString] = """
SELECT coalesce(json_object_agg(name, figures), '{{}}') FROM (
    SELECT whole.relname AS name, json_build_array(
        sum(CASE WHEN part.reltuples < 0 THEN pg_stat_get_live_tuples(part.oid)
            ELSE part.reltuples END)::bigint,
        coalesce(sum(pg_table_size(part.oid)), 0), coalesce(sum(pg_indexes_size(part.oid)), 0),
        string_agg(concat_ws(' ', shardid, pg_relation_filenode(part.oid),
            pg_relation_size(part.oid), pg_stat_get_tuples_inserted(part.oid)), ' '
            ORDER BY shardid)
        || concat_ws(' ', '',
            CASE current_setting('track_counts') WHEN 'on' THEN '' ELSE clock_timestamp()::text END,
            (SELECT timeline_id FROM pg_control_checkpoint()),
            (SELECT stats_reset FROM pg_stat_wal),
            (SELECT stats_reset FROM pg_stat_database WHERE datname = current_database()))
,
        json_object_agg(shardid,
            coalesce(pg_relation_size(part.oid), 0) / current_setting('block_size')::int)
    ) AS figures
    FROM pg_dist_shard JOIN pg_class whole ON whole.oid = logicalrelid
    JOIN pg_class part ON part.relnamespace = whole.relnamespace AND part.relkind = 'r'
        AND part.relname = whole.relname || '_' || shardid
    WHERE whole.relname = ANY({names}) AND whole.relkind = 'r' GROUP BY whole.relname
) AS measured
"""


class DiskUse(NamedTuple):
    """The size of a table on all nodes, without the tables that are its partitions."""

    rows: int = 0  # an estimate
    table: int = 0  # bytes, with TOAST
    indexes: int = 0  # bytes
    mark: str = ""  # changes when rows are added
    shards: Mapping[int, int] = MappingProxyType({})  # pages by the number of the shard

    @property
    def bytes(self) -> int:
        return self.table + self.indexes

    @property
    def pages(self) -> int:
        """The pages of the largest shard."""
        return max(self.shards.values(), default=0)


def measure_disk_use(
    connection: psycopg.Connection[Any], tables: Sequence[str], whole: bool = True
) -> Mapping[str, DiskUse]:
    """Measure the distributed tables among `tables`. Others are left out.

    Args:
        whole: Whether to raise if a node does not answer. Otherwise the node is left out.

    Raises:
        psycopg.OperationalError: A node does not answer, and `whole` is true.
    """
    command = sql.SQL(_OF_NODE).format(names=sql.Literal(list(tables))).as_string(connection)
    disk_uses: dict[str, DiskUse] = {}
    for _, _, success, result in distribution.ask_nodes(connection, command):
        if not success and whole:
            raise psycopg.OperationalError(f"a node of the cluster does not answer: {result}")
        node_tables = json.loads(result) if success else {}
        for name, (rows, table, indexes, mark, shards) in node_tables.items():
            former_use = disk_uses.get(name, DiskUse())
            node_shards = {int(shard): pages for shard, pages in shards.items()}
            disk_uses[name] = DiskUse(
                former_use.rows + int(rows or 0),
                former_use.table + int(table),
                former_use.indexes + int(indexes),
                f"{former_use.mark} {mark}".strip(),
                {**former_use.shards, **node_shards},
            )
    return disk_uses
