"""The production web server: several processes that count as one, and end cleanly."""

import json
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from annals import metrics as annals_metrics
from annals.embedded import logins
from history import metrics as history_metrics
from tests.attack.web import Web, gunicorn
from tests.consuming import Database, until
from tests.metric_faults import faults
from tests.processes import database, server

__all__ = ["database", "server"]

pytestmark = pytest.mark.system


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Where the processes have their temporary files."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture
def web(database: Database, temporary: Path, tmp_path: Path) -> Iterator[Web]:
    env = os.environ | {
        "DATABASE_URL": database.url_of(logins.WEB),
        "TMPDIR": str(temporary),
        "ANNALS_LOG_FORMAT": "json",
    }
    with gunicorn(env, tmp_path) as made:
        yield made


def not_found(web: Web) -> float:
    """How many 404 all processes have counted."""
    families = list(text_string_to_metric_families(web.get("/metrics").body.decode()))
    # Those of a consumer would look like a consumer that stands still.
    assert list(faults(families, [annals_metrics.REGISTER, history_metrics.REGISTER])) == []
    return sum(
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == "annals_http_requests_total" and sample.labels["status"] == "404"
    )


def workers(web: Web) -> list[psutil.Process]:
    return psutil.Process(web.pid).children()


def test_metrics_are_those_of_all_workers_also_of_one_that_died(web: Web) -> None:
    for number in range(1, 31):
        assert web.get(f"/nothing/{number}").status == 404
        assert not_found(web) == number
    killed = workers(web)[0]
    killed.kill()
    until(lambda: len(workers(web)) == 2 and killed not in workers(web), "no new worker")
    assert web.get("/nothing/31").status == 404
    assert not_found(web) == 31


def test_it_logs_json_and_ends_with_nothing_left(web: Web, temporary: Path) -> None:
    assert web.get("/nothing?q=secret").status == 404
    running = [psutil.Process(web.pid), *workers(web)]
    assert len(running) == 3
    os.kill(web.pid, signal.SIGTERM)
    ended, left = psutil.wait_procs(running, timeout=300)
    assert left == []
    assert {each.returncode for each in ended if each.pid == web.pid} == {0}
    assert list(temporary.iterdir()) == []
    text = web.log.read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    (request,) = [line for line in lines if line["logger"] == "annals.observe.requests"]
    assert request["message"] == "GET /nothing"
    assert request["status"] == 404
    assert len(request["requestId"]) == 32
    assert "secret" not in text
