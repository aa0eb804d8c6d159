"""A process that the demo starts, watches and stops, with its name and its log file."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LINES = 25


class ChildProcess:
    """One process in a session of its own. Ctrl-C therefore reaches only the supervisor, which
    stops the processes in an order that loses nothing."""

    def __init__(self, name: str, arguments: Sequence[str], log: Path) -> None:
        """arguments: those of the Python interpreter. log: overwritten at the start."""
        self.name = name
        self.log = log
        command = [sys.executable, "-m", "annals.demo.end_with_parent", str(os.getpid())]
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [*command, sys.executable, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def returncode(self) -> int | None:
        """None while it runs."""
        return self.process.poll()

    def answer(self) -> Any:
        """The last line of its log, which is JSON."""
        return json.loads(self.log.read_text().splitlines()[-1])

    def log_end(self) -> str:
        """The last lines of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LINES:])

    def stop(self, patience: float = 10) -> None:
        """Ask it to end; after `patience` seconds kill it and all processes that it started."""
        if self.returncode is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(patience)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # children that it may have left
        self.process.wait()
