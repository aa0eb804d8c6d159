"""Runs the commands `outbox` and `inbox` of the test service in processes or threads."""

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

from outbox.operations import process as commands

ROOT = Path(__file__).parents[2]
Process = subprocess.Popen[bytes]
RunnableProcess = TypeVar("RunnableProcess", bound=commands.Process)


def start_command(
    command: str, database: str, log: Path, **settings_by_variable: Mapping[str, Any]
) -> Process:
    """Start `manage.py COMMAND` of the service.

    Args:
        settings_by_variable: Values for the settings of the service, by environment variable.
    """
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.outbox.settings",
        "OUTBOX_TEST_DATABASE": database,
        **{name: json.dumps(settings) for name, settings in settings_by_variable.items()},
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
def run_in_thread(process: RunnableProcess) -> Iterator[RunnableProcess]:
    """Run a command of the outbox in a thread, and stop the command after the `with` block."""

    def run() -> None:
        process.run()
        connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield process
    finally:
        process.stop.set()
        thread.join(120)
        assert not thread.is_alive()


@contextmanager
def kill_at_end(processes: list[Process]) -> Iterator[list[Process]]:
    """Kill the processes at the end of the `with` block."""
    try:
        yield processes
    finally:
        for process in processes:
            process.send_signal(signal.SIGKILL)
        for process in processes:
            process.wait()
