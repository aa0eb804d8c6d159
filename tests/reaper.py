"""`python -m tests.reaper COMMAND...`: runs a command, and kills all processes that it leaves.

This includes processes with their own sessions, however the command ends. Processes with
ANNALS_TEST_OUTLIVES in their environment go on: these are nodes of an existing cluster, which a
fault test has restarted. The exit code is the command's, or 128 plus the number of the signal that
ended it. On other systems than Linux the reaper only runs the command.
"""

import ctypes
import os
import signal
import subprocess
import sys
from contextlib import suppress

import psutil

OUTLIVES = "ANNALS_TEST_OUTLIVES"
PR_SET_CHILD_SUBREAPER = 36


def main(arguments: list[str]) -> int:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    command = subprocess.Popen(arguments)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal also sends it to the command
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _frame: command.send_signal(number))
    while (ended_child := os.wait())[0] != command.pid:
        pass  # an orphan of the command, which the kernel gave to this process
    code = os.waitstatus_to_exitcode(ended_child[1])
    while children := list_children_to_end():
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(children, timeout=5)
    return code if code >= 0 else 128 - code


def list_children_to_end() -> list[psutil.Process]:
    """Return the child processes that the reaper must kill, and their descendants.

    Processes with OUTLIVES in their environment are left out.
    """
    children = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # the process has just ended, or is a zombie
            if OUTLIVES not in child.environ():
                children.append(child)
    return children


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
