"""What `annals consume` refuses before it reads anything, in a sentence."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from tests.consuming import command


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("ANNALS_")}
    nowhere = {"DATABASE_URL": "postgresql://a:b@127.0.0.1:1/x", "ANNALS_HOME": str(tmp_path)}
    return env | nowhere | {"KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}


def test_a_setting_that_librdkafka_does_not_know(environment: dict[str, str]) -> None:
    done = command(environment | {"ANNALS_KAFKA_NONSENSE": "1"}, "consume")
    assert done.returncode == 1
    assert 'No such configuration property: "nonsense"' in done.stderr
    assert "ANNALS_KAFKA_*" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_for_metrics_that_is_in_use(environment: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = ("--metrics-port", str(port), "--metrics-address", "127.0.0.1")
        done = command(environment, "consume", *words)
    assert done.returncode == 1
    assert f"--metrics-port {port}: metrics cannot be served on 127.0.0.1" in done.stderr
    assert "Traceback" not in done.stderr
