"""Commands of the service of the tests, as processes of their own."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from django.db import connection

from outbox import process as commands

ROOT = Path(__file__).parents[2]
Process = subprocess.Popen[bytes]
Runs = TypeVar("Runs", bound=commands.Process)


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
def in_thread(process: Runs) -> Iterator[Runs]:
    """A process of the outbox in a thread of this one, stopped at the end."""

    def run() -> None:
        process.run()
        connection.close()

    running = threading.Thread(target=run)
    running.start()
    try:
        yield process
    finally:
        process.stop.set()
        running.join(30)
        assert not running.is_alive()


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
