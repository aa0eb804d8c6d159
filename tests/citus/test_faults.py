"""The short form of `python -m tests.citus.faults`, which says more.

ANNALS_TEST_CITUS_STOP and ANNALS_TEST_CITUS_START are command lines that end a node as a
crash does, and start it, with {host} and {port}. ANNALS_TEST_CITUS_THIRD is HOST:PORT of a node
that has not joined.
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
    """Not under pytest's own directory, which only its user may enter."""
    path = Path(tempfile.mkdtemp(prefix="annals-citus-"))
    yield path
    shutil.rmtree(path)


def _given(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        pytest.skip(f"needs {name}: see tests/citus/test_faults.py")
    return value


@pytest.mark.parametrize(
    "scene", ["worker", "coordinator", "consumer", "prepared", "commit", "on-worker", "standby"]
)
def test_nothing_is_lost_or_doubled_when_node_or_consumer_dies(scene: str, folder: Path) -> None:
    _run(scene, folder)


def test_nothing_is_lost_or_doubled_when_worker_joins_and_leaves(folder: Path) -> None:
    _given("ANNALS_TEST_CITUS_THIRD")
    _run("rebalance", folder)


def _run(scene: str, folder: Path) -> None:
    host, _, port = os.environ.get("ANNALS_TEST_CITUS_THIRD", "").rpartition(":")
    plan = FaultPlan(
        os.environ["ANNALS_TEST_CITUS"],
        _given("ANNALS_TEST_CITUS_STOP"),
        _given("ANNALS_TEST_CITUS_START"),
        (host, int(port)) if port else None,
        [scene],
        shards=4,
        rate=100.0,
        seconds=8.0,  # a request waits for a database that is away before it is refused
        times=3,
    )
    result = run(plan, folder)
    assert result.wrong == []
    assert any("503" in line for line in result.lines) or scene in ("consumer", "rebalance")
