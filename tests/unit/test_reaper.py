"""tests.reaper ends the processes that a command leaves behind."""

import subprocess
import sys

import psutil
import pytest

from tests.reaper import OUTLIVES

_START = """
import os, subprocess
for extra in ({}, {%r: "1"}):
    child = subprocess.Popen(["sleep", "60"], env={**os.environ, **extra}, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    print(child.pid, flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the environment of processes")
def test_reaper_ends_processes_that_tests_left_except_nodes_of_a_cluster() -> None:
    script = _START % OUTLIVES
    command = [sys.executable, "-m", "tests.reaper", sys.executable, "-c", script]
    run = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    orphan, node = map(int, run.stdout.split())
    try:
        assert not psutil.pid_exists(orphan)
        assert psutil.pid_exists(node)
    finally:
        psutil.Process(node).kill()
