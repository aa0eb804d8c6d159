"""A process that the demo starts, watches and stops, with its name and its log file."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import Any

LINES = 25
# How long to wait for the output of a process that has ended.
OUTPUT_S = 1


class ChildProcess:
    """One process in a session of its own. Ctrl-C therefore reaches only the supervisor, which
    stops the processes in an order that loses nothing.

    Its output comes through a pipe: a full disk neither ends it nor hides its last lines.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        log: Path,
        pass_fds: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """arguments: those of the Python interpreter. log: overwritten at the start. pass_fds: the
        open files that it inherits. environment: None means this process's own."""
        self.name = name
        self.log = log
        command = [sys.executable, "-m", "annals.demo.end_with_parent", str(os.getpid())]
        self.process = subprocess.Popen(
            [*command, sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=pass_fds,
            env=environment,
        )
        self._last: deque[bytes] = deque(maxlen=LINES)
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None  # noqa: S101 - it is a pipe
        with self.process.stdout as output, self.log.open("wb", buffering=0) as log:
            for line in output:
                self._last.append(line)
                with contextlib.suppress(OSError):
                    log.write(line)

    @property
    def returncode(self) -> int | None:
        """None while it runs."""
        return self.process.poll()

    def answer(self) -> Any:
        """The last line of its output, which is JSON. Call it after the end."""
        return json.loads(self.output_end().splitlines()[-1])

    def output_end(self) -> str:
        """The last lines of its output. Call it after the end."""
        self._reader.join(OUTPUT_S)
        return b"".join(self._last).decode(errors="replace").rstrip()

    def stop(self, patience: float = 10) -> None:
        """Ask it to end; after `patience` seconds kill it and all processes that it started."""
        if self.returncode is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(patience)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # children that it may have left
        self.process.wait()
