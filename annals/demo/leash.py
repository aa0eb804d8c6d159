"""`python -m annals.demo.leash PARENT COMMAND...`: COMMAND, which ends when PARENT does.

Also when PARENT is killed with SIGKILL and can stop nothing any more (Linux; elsewhere COMMAND
just runs). What the leash sets outlives exec, so nothing of it stays in memory.
"""

import contextlib
import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: str, *command: str) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):
        sys.exit(f"{parent} is gone already")
    os.execvp(command[0], command)  # noqa: S606 (no shell is meant)


if __name__ == "__main__":
    main(*sys.argv[1:])
