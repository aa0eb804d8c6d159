"""What a node leaves that ends between the two phases of a commit: counted, and decided."""

from __future__ import annotations

import pytest

from annals.observe import server_metrics
from history.entities import root
from tests.citus.cluster import Citus, disconnect

# As Citus names them: the node that began it, its process, a number of its own, and one more.
LEFT = "citus_0_999999_424242_1"


def left() -> float:
    [metric] = server_metrics.prepared_left()
    [sample] = metric.samples
    disconnect()
    return float(sample.value)


def test_a_prepared_transaction_is_counted_and_recovered(
    distributed: Citus, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert left() == 0
    [(shard,)] = distributed.rows(
        "SELECT shardid FROM pg_dist_shard_placement JOIN pg_dist_shard USING (shardid)"
        " WHERE logicalrelid = 'search_key'::regclass AND nodeport = %s LIMIT 1",
        [distributed.raw(1).info.port],
    )
    worker = distributed.raw(1)
    worker.execute("SET citus.enable_manual_changes_to_shards TO on")
    worker.execute("BEGIN")
    worker.execute(
        f"INSERT INTO search_key_{shard} VALUES ('v', 'n', %s, 'a1', current_date)", [root().name]
    )
    worker.execute(f"PREPARE TRANSACTION '{LEFT}'")
    try:
        assert left() == 0, "a young one is at work"
        text = server_metrics._PREPARED_LEFT.replace("5 minutes", "0 minutes")
        monkeypatch.setattr(server_metrics, "_PREPARED_LEFT", text)
        assert left() == 1
        assert distributed.rows("SELECT recover_prepared_transactions()") == [(1,)]
        assert left() == 0
        # The coordinator did not commit it.
        assert distributed.rows("SELECT count(*) FROM search_key") == [(0,)]
    finally:
        if worker.execute("SELECT FROM pg_prepared_xacts WHERE gid = %s", [LEFT]).fetchone():
            worker.execute(f"ROLLBACK PREPARED '{LEFT}'")
