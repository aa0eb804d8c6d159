"""A short form of `python -m tests.citus.faults`.

ANNALS_TEST_CITUS_STOP is a command line that ends a node as a crash does. ANNALS_TEST_CITUS_START
is a command line that starts the node. Both contain the placeholders {host} and {port}.
ANNALS_TEST_CITUS_THIRD is HOST:PORT of a node that has not joined the cluster.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.citus.faults.run import FaultPlan, run


@pytest.fixture
def folder() -> Iterator[Path]:
    """A temporary folder outside of pytest's temporary directory.

    Only pytest's user may enter pytest's temporary directory.
    """
    path = Path(tempfile.mkdtemp(prefix="annals-citus-"))
    yield path
    shutil.rmtree(path)


def _require_variable(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        pytest.skip(f"needs {name}: see tests/citus/test_faults.py")
    return value


@pytest.mark.parametrize(
    "scene", ["worker", "coordinator", "consumer", "prepared", "commit", "on-worker", "standby"]
)
def test_nothing_is_lost_or_doubled_when_node_or_consumer_dies(scene: str, folder: Path) -> None:
    _run_scene(scene, folder)


def test_nothing_is_lost_or_doubled_when_worker_joins_and_leaves(folder: Path) -> None:
    _require_variable("ANNALS_TEST_CITUS_THIRD")
    _run_scene("rebalance", folder)


def _run_scene(scene: str, folder: Path) -> None:
    host, _, port = os.environ.get("ANNALS_TEST_CITUS_THIRD", "").rpartition(":")
    plan = FaultPlan(
        os.environ["ANNALS_TEST_CITUS"],
        _require_variable("ANNALS_TEST_CITUS_STOP"),
        _require_variable("ANNALS_TEST_CITUS_START"),
        (host, int(port)) if port else None,
        [scene],
        shards=4,
        rate=100.0,
        seconds=8.0,  # long enough for a request to be refused because the database is down
        times=3,
    )
    result = run(plan, folder)
    assert result.wrong == []
    assert any("503" in line for line in result.lines) or scene in ("consumer", "rebalance")
