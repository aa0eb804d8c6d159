"""What `annals capacity --nodes` says a new worker takes over is what Citus would move."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from history.capacity.rebalance import BASE_COST, IMPROVEMENT, THRESHOLD, Workers
from tests.citus.cluster import Citus

# A strategy like by_disk_size, with sizes out of a table.
STRATEGY = """
CREATE TABLE given (shard bigint PRIMARY KEY, cost float4);
CREATE FUNCTION cost_of(bigint) RETURNS float4 LANGUAGE sql AS
    'SELECT cost FROM given WHERE shard = $1';
CREATE FUNCTION capacity_of(int) RETURNS float4 LANGUAGE sql AS 'SELECT 1::float4';
CREATE FUNCTION allowed_on(bigint, int) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE TABLE parts (id text);
SELECT create_distributed_table('parts', 'id');
"""
PLACES = """
SELECT shardid, nodeid FROM pg_dist_shard JOIN pg_dist_placement USING (shardid)
JOIN pg_dist_node USING (groupid) WHERE logicalrelid = 'parts'::regclass ORDER BY shardid
"""
PLAN = """
SELECT shardid, source.nodeid, target.nodeid
FROM get_rebalance_table_shards_plan('parts', rebalance_strategy => 'given') AS plan
JOIN pg_dist_node AS source ON (source.nodename, source.nodeport) = (sourcename, sourceport)
JOIN pg_dist_node AS target ON (target.nodename, target.nodeport) = (targetname, targetport)
"""
# The coordinator is the new worker.
NEW = """
SELECT citus_set_node_property(nodename, nodeport, 'shouldhaveshards', %s)
FROM pg_dist_node WHERE groupid = 0
"""


@pytest.fixture(scope="module")
def parts(citus: Citus) -> Iterator[Citus]:
    plain = citus.raw()
    plain.execute(STRATEGY)
    plain.execute(
        "SELECT citus_add_rebalance_strategy('given', 'cost_of', 'capacity_of', 'allowed_on',"
        " %s::float4, 0.01::float4, %s::float4)",
        [THRESHOLD, IMPROVEMENT],
    )
    yield citus
    plain.execute(NEW, [False])


def test_strategy_is_that_of_citus(citus: Citus) -> None:
    [(default, improvement, cost)] = citus.rows(
        "SELECT default_threshold, improvement_threshold,"
        " current_setting('citus.rebalancer_by_disk_size_base_cost')"
        " FROM pg_dist_rebalance_strategy WHERE name = 'by_disk_size' AND default_strategy"
    )
    assert default == pytest.approx(THRESHOLD)
    assert improvement == pytest.approx(IMPROVEMENT)
    assert int(cost.removesuffix("MB")) << 20 == BASE_COST


@pytest.mark.parametrize("seed", range(6))
def test_moves_to_a_new_worker_are_those_of_citus(parts: Citus, seed: int) -> None:
    plain = parts.raw()
    plain.execute(NEW, [False])
    places = parts.rows(PLACES)
    chosen = random.Random(seed)
    sizes = [
        chosen.choice([chosen.uniform(0, 5e9), chosen.lognormvariate(0, 1.5) * 1e9]) for _ in places
    ]
    with plain.cursor() as cursor:
        cursor.execute("TRUNCATE given")
        cursor.executemany(
            "INSERT INTO given VALUES (%s, %s)",
            [(shard, size + BASE_COST) for (shard, _), size in zip(places, sizes, strict=True)],
        )
    nodes = list(dict.fromkeys(node for _, node in places))
    workers = Workers(sizes, len(nodes))
    assert [nodes[number % len(nodes)] for number in range(len(places))] == [
        node for _, node in places
    ]
    [(coordinator,)] = parts.rows("SELECT nodeid FROM pg_dist_node WHERE groupid = 0")
    workers.add()
    nodes.append(coordinator)
    plain.execute(NEW, [True])
    mine = [
        (places[move.shard][0], nodes[move.source], nodes[move.target])
        for move in workers.rebalance()
    ]
    assert mine
    assert mine == parts.rows(PLAN)
