"""What a node leaves that ends between the two phases of a commit: counted, and decided."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from annals.observe import metrics
from history.entities import root
from tests.citus.cluster import Citus, disconnect

# As Citus names them: the node that began it, its process, a number of its own, and one more.
LEFT = "citus_0_999999_424242_1"


def left() -> float:
    [metric] = metrics.prepared_left()
    [sample] = metric.samples
    disconnect()
    return float(sample.value)


@contextmanager
def prepared_on_a_worker(citus: Citus) -> Iterator[None]:
    """A prepared transaction on the first worker that its coordinator has not committed."""
    worker = citus.raw(1)
    [(shard,)] = citus.rows(
        "SELECT shardid FROM pg_dist_shard_placement JOIN pg_dist_shard USING (shardid)"
        " WHERE logicalrelid = 'search_key'::regclass AND nodeport = %s LIMIT 1",
        [worker.info.port],
    )
    worker.execute("SET citus.enable_manual_changes_to_shards TO on")
    worker.execute("BEGIN")
    worker.execute(
        f"INSERT INTO search_key_{shard} VALUES ('v', 'n', %s, 'a1', current_date)", [root().name]
    )
    worker.execute(f"PREPARE TRANSACTION '{LEFT}'")
    try:
        yield
    finally:
        if worker.execute("SELECT FROM pg_prepared_xacts WHERE gid = %s", [LEFT]).rowcount:
            worker.execute(f"ROLLBACK PREPARED '{LEFT}'")


def test_a_prepared_transaction_is_counted_and_recovered(
    distributed: Citus, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert left() == 0
    with prepared_on_a_worker(distributed):
        assert left() == 0, "a young one is at work"
        text = metrics._PREPARED_LEFT.replace("5 minutes", "0 minutes")
        monkeypatch.setattr(metrics, "_PREPARED_LEFT", text)
        assert left() == 1
        assert distributed.rows("SELECT recover_prepared_transactions()") == [(1,)]
        assert left() == 0
        # The coordinator did not commit it.
        assert distributed.rows("SELECT count(*) FROM search_key") == [(0,)]
