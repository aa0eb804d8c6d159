"""The service of the tests as a real process that answers requests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from annals.embedded.process import free_ports

ROOT = Path(__file__).parents[2]
TOKEN = "t" * 40


@contextmanager
def serving(database: str, folder: Path, **changes: Any) -> Iterator[str]:
    """The service, with a file of tokens in the folder; the address of its outbox. changes: of
    settings.OUTBOX."""
    token_file = folder / "resend.token"
    token_file.write_text(f"{TOKEN}\n")
    [port] = free_ports([None])
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.outbox.settings",
        "OUTBOX_TEST_DATABASE": database,
        "OUTBOX_TEST_SETTINGS": json.dumps({"RESEND_TOKEN_FILE": str(token_file), **changes}),
    }
    command = ["-m", "django", "runserver", "--noreload", "--skip-checks", f"127.0.0.1:{port}"]
    with (folder / "service.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", *command],
            env=environment,
            cwd=ROOT,
            stdout=log,
            stderr=log,
        )
    try:
        url = f"http://127.0.0.1:{port}/outbox"
        _wait(f"{url}/versions", process)
        yield url
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, "the service has ended"
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except urllib.error.HTTPError as error:
            error.close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the service does not answer")
