"""Commands of the service of the tests, as processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
Process = subprocess.Popen[bytes]


def start(command: str, database: str, log: Path, **given: Mapping[str, Any]) -> Process:
    """`manage.py COMMAND` of the service. given: settings by the variable that takes them."""
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.outbox.settings",
        "OUTBOX_TEST_DATABASE": database,
        **{name: json.dumps(settings) for name, settings in given.items()},
    }
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "django", *command.split()],
            env=environment,
            cwd=ROOT,
            stdout=output,
            stderr=output,
        )


@contextmanager
def kept(running: list[Process]) -> Iterator[list[Process]]:
    """Processes that are killed at the end, whatever became of them."""
    try:
        yield running
    finally:
        for process in running:
            process.send_signal(signal.SIGKILL)
        for process in running:
            process.wait()
