"""`python -m benchmarks`, interrupted."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import psycopg
import pytest

from annals.embedded import Broker
from benchmarks.harness import DATABASE
from tests.consuming import ROOT, Database, until
from tests.processes import database, server

pytestmark = pytest.mark.system

__all__ = ["database", "server"]


def test_sigterm_leaves_no_server_no_process_and_no_database(
    database: Database, tmp_path: Path
) -> None:
    broker = Broker(tmp_path / "bench" / "broker")
    env = {**os.environ, "ANNALS_HOME": str(tmp_path), "DATABASE_URL": database.url}
    words = [sys.executable, "-m", "benchmarks", "ingest", "--messages", "500", "--rounds", "99"]
    with (tmp_path / "log").open("wb") as log:
        running = subprocess.Popen(words, cwd=ROOT, env=env, stdout=log, stderr=log)
    bench = psutil.Process(running.pid)
    try:
        until(lambda: any(map(consumes, bench.children())), (tmp_path / "log").read_text, 180)
        started = bench.children(recursive=True)
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 128 + signal.SIGTERM
    finally:
        running.kill()
        running.wait()
    assert not [each for each in started if each.is_running()]
    assert not broker.running()
    with psycopg.connect(database.url) as plain:
        named = plain.execute("SELECT FROM pg_database WHERE datname = %s", (DATABASE,))
        assert named.fetchall() == []


def consumes(process: psutil.Process) -> bool:
    try:
        return "consume" in process.cmdline()
    except psutil.Error:  # it has ended
        return False
