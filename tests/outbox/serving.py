"""The service of the tests as a real process that answers requests."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from annals.embedded.process import free_ports
from tests.outbox import processes
from tests.outbox.processes import Process

TOKEN = "t" * 40


@contextmanager
def serving(database: str, folder: Path, **changes: Any) -> Iterator[str]:
    """The service, with a file of tokens in the folder; the address of its outbox. changes: of
    settings.OUTBOX."""
    token_file = folder / "resend.token"
    token_file.write_text(f"{TOKEN}\n")
    [port] = free_ports([None])
    process = processes.start(
        f"runserver --noreload --skip-checks 127.0.0.1:{port}",
        database,
        folder / "service.log",
        OUTBOX_TEST_SETTINGS={"RESEND_TOKEN_FILE": str(token_file), **changes},
    )
    with processes.kept([process]):
        url = f"http://127.0.0.1:{port}/outbox"
        _wait(f"{url}/versions", process)
        yield url


def _wait(url: str, process: Process) -> None:
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
