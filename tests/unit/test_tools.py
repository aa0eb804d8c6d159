"""The runner of the tests leaves no process behind."""

import signal
import subprocess
import sys

import psutil
import pytest

LEAVES = (
    "import subprocess, sys, time;"
    "print(subprocess.Popen(['sleep', '1000'], start_new_session=True).pid, flush=True);"
    "sys.exit(3) if len(sys.argv) > 1 else time.sleep(1000)"
)


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
@pytest.mark.parametrize("sent, more, code", [(signal.SIGTERM, [], 143), (None, ["end"], 3)])
def test_nothing_is_left_of_a_run(sent: signal.Signals | None, more: list[str], code: int) -> None:
    words = [sys.executable, "-m", "tests.reaper", sys.executable, "-c", LEAVES, *more]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        left = int(run.stdout.readline())
        if sent is not None:
            run.send_signal(sent)
        assert run.wait(60) == code
    assert not psutil.pid_exists(left)
