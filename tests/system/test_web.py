"""The production web server: metrics, logs and the end of its processes."""

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
from tests.attack.web import AttackedWeb, run_gunicorn
from tests.consuming import ProductDatabase, wait_until
from tests.metric_faults import find_metric_faults
from tests.processes import database, server

__all__ = ["database", "server"]

pytestmark = pytest.mark.system


@pytest.fixture
def temporary() -> Iterator[Path]:
    """The folder for the temporary files of the processes."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture
def web(database: ProductDatabase, temporary: Path, tmp_path: Path) -> Iterator[AttackedWeb]:
    env = os.environ | {
        "DATABASE_URL": database.build_url(logins.WEB),
        "TMPDIR": str(temporary),
        "ANNALS_LOG_FORMAT": "json",
    }
    with run_gunicorn(env, tmp_path) as running_web:
        yield running_web


def count_not_found(web: AttackedWeb) -> float:
    """Return the number of answers with status 404, summed over all processes of the server."""
    families = list(text_string_to_metric_families(web.send_request("/metrics").body.decode()))
    # Metrics of a consumer would look like a consumer that does not advance.
    assert (
        list(find_metric_faults(families, [annals_metrics.REGISTER, history_metrics.REGISTER]))
        == []
    )
    return sum(
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == "annals_http_requests_total" and sample.labels["status"] == "404"
    )


def list_workers(web: AttackedWeb) -> list[psutil.Process]:
    return psutil.Process(web.pid).children()


def test_request_metrics_include_worker_processes_that_ended(web: AttackedWeb) -> None:
    for number in range(1, 31):
        assert web.send_request(f"/nothing/{number}").status == 404
        assert count_not_found(web) == number
    killed = list_workers(web)[0]
    killed.kill()
    wait_until(
        lambda: len(list_workers(web)) == 2 and killed not in list_workers(web), "no new worker"
    )
    assert web.send_request("/nothing/31").status == 404
    assert count_not_found(web) == 31


def test_web_logs_json_and_leaves_no_process_or_temporary_file(
    web: AttackedWeb, temporary: Path
) -> None:
    assert web.send_request("/nothing?q=secret").status == 404
    running = [psutil.Process(web.pid), *list_workers(web)]
    assert len(running) == 3
    os.kill(web.pid, signal.SIGTERM)
    ended, still_running = psutil.wait_procs(running, timeout=300)
    assert still_running == []
    assert {child.returncode for child in ended if child.pid == web.pid} == {0}
    assert list(temporary.iterdir()) == []
    text = web.log.read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    (request,) = [line for line in lines if line["logger"] == "annals.web.request_log"]
    assert request["message"] == "GET /nothing"
    assert request["status"] == 404
    assert len(request["requestId"]) == 32
    assert "secret" not in text
