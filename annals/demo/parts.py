"""The processes that the demo starts, watches and ends: each with a name and a log file."""

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


class Part:
    """One process in a session of its own, so that Ctrl-C reaches the supervisor alone, which
    ends the parts in an order that loses nothing."""

    def __init__(self, name: str, arguments: Sequence[str], log: Path) -> None:
        """arguments: of the Python interpreter. log: overwritten at the start."""
        self.name = name
        self.log = log
        command = [sys.executable, "-m", "annals.demo.leash", str(os.getpid())]
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

    def said(self) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LINES:])

    def stop(self, patience: float = 10) -> None:
        """Ask it to end; after `patience` seconds end it and all that it started."""
        if self.returncode is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(patience)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # its children, where it left any
        self.process.wait()
