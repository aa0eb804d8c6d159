"""`scripts/kafka`, as a person uses it."""

import os
import subprocess
from pathlib import Path

import pytest

from tests import need
from tests.apache.broker import Apache

pytestmark = pytest.mark.kafka

ROOT = Path(__file__).parents[2]


def test_start_status_stop(tmp_path: Path) -> None:
    need.java()
    need.maven()
    environment = {**os.environ, "ANNALS_HOME": str(tmp_path)}

    def kafka(*arguments: str) -> str:
        command = [ROOT / "scripts" / "kafka", *arguments]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        ).stdout

    node = Apache(tmp_path / "apache-kafka")
    try:
        assert "not running" in kafka("status")
        started = kafka("start")
        assert f"PLAINTEXT      127.0.0.1:{node.port()}" in started
        assert node.running()
        assert kafka("status") == started
        assert "not running" in kafka("stop")
        assert node.pid() is None
    finally:
        node.kill()
