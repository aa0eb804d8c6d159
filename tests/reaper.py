"""`python -m tests.reaper COMMAND...`: run a command, and when it ends, however it does, kill all
processes that it left, also those with sessions of their own. Its exit code is the command's, 128
and the signal's number if one ended it. Linux only; elsewhere it only runs the command."""

import ctypes
import os
import signal
import subprocess
import sys

import psutil

PR_SET_CHILD_SUBREAPER = 36


def main(words: list[str]) -> int:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    command = subprocess.Popen(words)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to both
    for each in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(each) is not signal.SIG_IGN:
            signal.signal(each, lambda number, _frame: command.send_signal(number))
    while (ended := os.wait())[0] != command.pid:
        pass  # a process whose parent had ended
    code = os.waitstatus_to_exitcode(ended[1])
    while left := psutil.Process().children(recursive=True):
        for each in left:
            each.kill()
        psutil.wait_procs(left, timeout=5)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
