"""The production web server: several processes that count as one, and end cleanly."""

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from annals import metrics as annals_metrics
from annals.embedded import logins, process
from history import metrics as history_metrics
from tests.consuming import Database
from tests.metric_faults import faults
from tests.processes import database, server

__all__ = ["database", "server"]

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60

pytestmark = pytest.mark.system


class Web:
    """gunicorn with two workers, temporary files and log in `folder`."""

    def __init__(self, folder: Path, database: Database) -> None:
        (port,) = process.free_ports([None])
        self.address = f"http://127.0.0.1:{port}"
        self.log = folder / "log"
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        bind = ("--bind", f"127.0.0.1:{port}", "annals.wsgi")
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gunicorn", "--config", "python:annals.server", *bind],
                cwd=ROOT,
                env={
                    **os.environ,
                    "DATABASE_URL": database.url_of(logins.WEB),
                    "TMPDIR": str(self.temporary),
                    "ANNALS_LOG_FORMAT": "json",
                },
                stderr=log,
            )
        deadline = time.monotonic() + PATIENCE_S
        while self.get("/healthz") != 200:
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.1)

    def get(self, path: str) -> int:
        """The status; 0 where nobody answers."""
        try:
            with urllib.request.urlopen(self.address + path, timeout=PATIENCE_S) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def not_found(self) -> float:
        """How many 404 all processes have counted."""
        with urllib.request.urlopen(f"{self.address}/metrics") as answer:
            families = list(text_string_to_metric_families(answer.read().decode()))
        # Those of a consumer would look like a consumer that stands still.
        assert list(faults(families, [annals_metrics.REGISTER, history_metrics.REGISTER])) == []
        return sum(
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == "annals_http_requests_total" and sample.labels["status"] == "404"
        )

    def workers(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()


@pytest.fixture
def web(database: Database) -> Iterator[Web]:
    with tempfile.TemporaryDirectory() as folder:
        web = Web(Path(folder), database)
        yield web
        web.process.kill()
        web.process.wait()


def test_metrics_are_those_of_all_workers_also_of_one_that_died(web: Web) -> None:
    for number in range(1, 31):
        assert web.get(f"/nothing/{number}") == 404
        assert web.not_found() == number
    killed = web.workers()[0]
    killed.kill()
    deadline = time.monotonic() + PATIENCE_S
    while len(web.workers()) < 2 or killed in web.workers():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert web.get("/nothing/31") == 404
    assert web.not_found() == 31


def test_it_logs_json_and_ends_with_nothing_left(web: Web) -> None:
    assert web.get("/nothing?q=secret") == 404
    workers = web.workers()
    assert len(workers) == 2
    web.process.terminate()
    assert web.process.wait(PATIENCE_S) == 0
    assert not any(worker.is_running() for worker in workers)
    assert list(web.temporary.iterdir()) == []
    text = web.log.read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    (request,) = [line for line in lines if line["logger"] == "annals.observe.requests"]
    assert request["message"] == "GET /nothing"
    assert request["status"] == 404
    assert len(request["requestId"]) == 32
    assert "secret" not in text
