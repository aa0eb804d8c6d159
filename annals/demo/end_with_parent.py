"""`python -m annals.demo.end_with_parent PARENT COMMAND...`: COMMAND ends when PARENT ends, even by
SIGKILL (on Linux; elsewhere COMMAND just runs)."""

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
        sys.exit(f"process {parent} has ended already")
    os.execvp(command[0], command)  # noqa: S606 (no shell is meant)


if __name__ == "__main__":
    main(*sys.argv[1:])
