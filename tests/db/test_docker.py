"""What can be said about docker/ without a container engine (none is at hand where this runs)."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import REGISTRY

from annals import env
from annals.observe import metrics
from annals.observe.store_metrics import StoreCollector
from history.models import MaintainRun
from ingest.metrics import BATCHES

DOCKER = Path(__file__).parents[2] / "docker"
METRIC = re.compile(r"\bannals_[a-z_]+")
ENDINGS = {"counter": ["_total"], "gauge": [""], "histogram": ["_bucket", "_sum", "_count"]}


def load(name: str) -> Any:
    return yaml.safe_load((DOCKER / name).read_text())


def exported() -> set[str]:
    """Every sample that the web or the consumer can give."""
    assert metrics.REQUESTS
    assert BATCHES
    counts = dict.fromkeys(("created", "dropped", "held", "busy", "broken"), 0)
    MaintainRun.objects.create(started_at=datetime.now(UTC), seconds=1, exit_code=0, **counts)
    return {
        family.name + ending
        for family in [*StoreCollector().collect(), *REGISTRY.collect()]
        for ending in ENDINGS.get(family.type, [])
    }


@pytest.mark.django_db
def test_alerts_ask_only_for_metrics_that_exist() -> None:
    rules = [rule for group in load("prometheus/rules.yaml")["groups"] for rule in group["rules"]]
    asked = {name for rule in rules for name in METRIC.findall(rule["expr"])}
    assert asked
    assert asked <= exported()


@pytest.mark.django_db
def test_the_dashboard_asks_only_for_metrics_that_exist() -> None:
    board = json.loads((DOCKER / "grafana/dashboards/annals.json").read_text())
    asked = {
        name
        for panel in board["panels"]
        for target in panel["targets"]
        for name in METRIC.findall(target["expr"])
    }
    assert asked
    assert asked <= exported()


def test_every_alert_has_its_line_in_the_operations_page() -> None:
    page = (DOCKER.parent / "docs/operations.md").read_text()
    documented = set(re.findall(r"^\| (Annals\w+) \|", page, re.MULTILINE))
    rules = [rule for group in load("prometheus/rules.yaml")["groups"] for rule in group["rules"]]
    assert documented == {rule["alert"] for rule in rules}


def test_compose_sets_only_settings_that_exist() -> None:
    services = load("compose.yaml")["services"]
    environment = services["web"]["environment"]
    fitting = {
        "ANNALS_RETENTION_DAYS": "1",
        "DATABASE_URL": environment["DATABASE_URL"].replace(":?set it in docker/.env", ""),
    }
    env.read({name: fitting.get(name, "1" * 32) for name in environment})
    asked = set(re.findall(r"\$\{(\w+):\?", (DOCKER / "compose.yaml").read_text()))
    given = set(re.findall(r"^(\w+)=", (DOCKER / "example.env").read_text(), re.MULTILINE))
    assert asked == given


def test_compose_mounts_only_what_is_there() -> None:
    mounts = [
        mount.split(":")[0]
        for service in load("compose.yaml")["services"].values()
        for mount in service.get("volumes", [])
    ]
    folders = [mount for mount in mounts if mount.startswith(".")]
    assert folders
    assert [folder for folder in folders if not (DOCKER / folder).is_dir()] == []


def test_the_image_is_made_of_what_is_there_and_runs_as_nobody_special() -> None:
    text = (DOCKER / "Dockerfile").read_text()
    copied = re.findall(r"^COPY (?!--from)(\S+) ", text, re.MULTILINE)
    assert copied
    assert [path for path in copied if not (DOCKER.parent / path).exists()] == []
    assert text.index("USER annals") < text.index("CMD ")
