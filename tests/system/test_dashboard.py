"""A real Prometheus with the configuration of docker/ scrapes a running Annals: each panel of the
dashboard has data, each rule can be evaluated, and no alert fires. Grafana itself does not run."""

import json
import os
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from annals.embedded import logins, process
from annals.embedded.broker import Daemon
from history.entities import ENTITIES
from tests import need
from tests.attack.web import gunicorn
from tests.consuming import Consumers, Database, Feed, send, until
from tests.messages import NOW
from tests.processes import consumers, database, feed, server

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
TOKEN = "a-token-of-some-length"
TOPIC = ENTITIES[0].topics[0]

pytestmark = [
    pytest.mark.system,
    # What is asked of Prometheus does not depend on the kind of broker.
    pytest.mark.parametrize("broker", ["embedded"], indirect=True),
]
__all__ = ["consumers", "database", "feed", "server"]


class Prometheus:
    """A running Prometheus. web: the address of the web that it scrapes."""

    def __init__(self, port: int, web: int) -> None:
        self.address = f"http://127.0.0.1:{port}"
        self.web = f"http://127.0.0.1:{web}"

    def ask(self, path: str, **parameters: str) -> Any:
        url = f"{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]

    def values(self, query: str) -> list[float]:
        """The values of a query; those that are no number count as none."""
        found = [float(each["value"][1]) for each in self.ask("query", query=query)["result"]]
        return [value for value in found if value == value]

    def rules(self) -> list[dict[str, Any]]:
        return [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]


def configuration(folder: Path, web: int, consumer: int) -> Path:
    """docker/prometheus/prometheus.yaml with the addresses of this test, and in more of a hurry."""
    token = folder / "token"
    token.write_text(TOKEN)
    given = yaml.safe_load((DOCKER / "prometheus/prometheus.yaml").read_text())
    given["global"] |= {"scrape_interval": "2s", "evaluation_interval": "1s"}
    given["rule_files"] = [str(DOCKER / "prometheus/rules.yaml")]
    targets = {"annals-web": web, "annals-consume": consumer}
    jobs = [job for job in given["scrape_configs"] if job["job_name"] in targets]
    assert len(jobs) == len(targets)
    for job in jobs:
        job["static_configs"] = [{"targets": [f"127.0.0.1:{targets[job['job_name']]}"]}]
        if "authorization" in job:
            job["authorization"]["credentials_file"] = str(token)
    given["scrape_configs"] = jobs
    path = folder / "prometheus.yaml"
    path.write_text(yaml.safe_dump(given))
    return path


@contextmanager
def scraped(folder: Path, database: Database, consumers: Consumers) -> Iterator[Prometheus]:
    """A web, a consumer, and Prometheus, which has scraped both."""
    metrics, port = process.free_ports([None, None])
    running = consumers.start("--metrics-port", str(metrics))
    running.until_reading()
    env = os.environ | {"DATABASE_URL": database.url_of(logins.WEB), "ANNALS_METRICS_TOKEN": TOKEN}
    with gunicorn(env, folder) as web, (folder / "prometheus.log").open("wb") as log:
        server = subprocess.Popen(
            [need.prometheus(), f"--config.file={configuration(folder, web.port, metrics)}",
             f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}"],
            stdout=log, stderr=log,
        )  # fmt: skip
        found = Prometheus(port, web.port)

        def up() -> bool:
            try:
                return found.values('up{job=~"annals-.*"}') == [1, 1]
            except OSError:
                return False

        try:
            until(up, lambda: (folder / "prometheus.log").read_text()[-2000:])
            yield found
        finally:
            server.terminate()
            server.wait(30)


def panels() -> list[tuple[str, str]]:
    board = json.loads((DOCKER / "grafana/dashboards/annals.json").read_text())
    return [
        (panel["title"], target["expr"]) for panel in board["panels"] for target in panel["targets"]
    ]


def test_each_panel_has_data_and_no_alert_fires(
    broker: Daemon, consumers: Consumers, database: Database, feed: Feed, tmp_path: Path
) -> None:
    consumers.env["ANNALS_RETENTION_DAYS"] = "5"  # few days to make
    assert consumers.manage("partitions", "maintain").returncode == 0
    day = NOW - timedelta(days=4)
    columns = "id, version, data, updated_at, client_id, type"
    database.execute(
        f"INSERT INTO {ENTITIES[0].table} ({columns}) VALUES ('a', 1, '{{}}', '{day}', 'c', 1)"
    )
    for words in (("seal", f"{day:%Y-%m-%d}", "--entity", ENTITIES[0].name), ("verify",)):
        done = consumers.manage("partitions", *words)
        assert done.returncode == 0, done.stderr
    send(broker.client(), (TOPIC, b"not JSON"))
    with scraped(tmp_path, database, consumers) as prometheus, feed.pouring(20):
        empty = panels()

        def filled() -> bool:
            with urllib.request.urlopen(f"{prometheus.web}/admin/login/") as answer:
                assert answer.status == 200
            empty[:] = [(title, query) for title, query in empty if not prometheus.values(query)]
            return not empty

        until(filled, lambda: f"no data: {empty}")
        rules = prometheus.rules()
        assert len(rules) > 30
        until(lambda: all(r["health"] == "ok" for r in prometheus.rules()), lambda: str(
            [(r["name"], r.get("lastError")) for r in prometheus.rules() if r["health"] != "ok"]
        ))  # fmt: skip
        states = {rule["name"]: rule["state"] for rule in prometheus.rules()}
        assert {name for name, state in states.items() if state == "firing"} == set()
        # What is wrong here is seen, and not yet for 5 minutes and an hour.
        assert states["AnnalsQuarantine"] == states["AnnalsDiskUnknown"] == "pending"
