"""Metrics are documented and queried by their real names and labels. The import contracts in
pyproject.toml catch every module that reads a source without the policy."""

import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import grimp
import pytest
import yaml
from importlinter import configuration
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.protected import ProtectedContract

from annals import metrics as annals_metrics
from history import metrics as history_metrics
from history.common.metric import MetricDescription, MetricKind, OpenValues
from ingest.consumer import metrics as ingest_metrics
from tests.required_programs import promtool

ROOT = Path(__file__).parents[2]


APPS = {"annals": annals_metrics, "history": history_metrics, "ingest": ingest_metrics}
REGISTERS = [module.REGISTER for module in APPS.values()]
ALL = {name: metric for register in REGISTERS for name, metric in register.descriptions.items()}
SAMPLES = {sample: metric for metric in ALL.values() for sample in metric.list_sample_names()}
NAME = re.compile(r"\bannals_\w+")
# The name of a metric, with the label matchers in its braces.
SELECTED = re.compile(r"\b(annals_\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)\s*(?:=~?|!=|!~)\s*"([^"]*)"')
# Names that look like metrics: roles of the database, functions, and a module of an example.
NO_METRICS = {"annals_consumer", "annals_web", "annals_rules", "annals_refuse_packed"}
BY_PROMETHEUS = {"job", "instance", "le"}


def iterate_queries() -> Iterator[tuple[str, str]]:
    """Yield the queries of the alerts and of the dashboard, each with its alert or panel."""
    rules = yaml.safe_load((ROOT / "docker/prometheus/rules.yaml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            yield rule.get("alert", rule.get("record")), rule["expr"]
    board = json.loads((ROOT / "docker/grafana/dashboards/annals.json").read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            yield f"panel {panel['title']}", target["expr"]


@pytest.mark.parametrize("described", ALL.values(), ids=lambda metric: metric.name)
def test_each_metric_has_a_description(described: MetricDescription) -> None:
    assert described.name.startswith("annals_")
    assert described.name.endswith("_total") == (described.kind is MetricKind.COUNTER)
    assert described.unit
    assert described.text.endswith(".")
    for values in described.labels.values():
        assert (
            values.description
            if isinstance(values, OpenValues)
            else len(set(values)) == len(values) > 0
        )


def test_documentation_names_only_metrics_that_exist() -> None:
    pages = {
        page: set(NAME.findall(re.sub(r"annals_\w*\*", "", page.read_text())))
        for page in (ROOT / "docs").rglob("*.md")
    }
    assert sum(map(len, pages.values())) > len(ALL)
    wrong = {page.name: actual - {*SAMPLES, *ALL, *NO_METRICS} for page, actual in pages.items()}
    assert {name: rows for name, rows in wrong.items() if rows} == {}


def test_prometheus_queries_use_only_metrics_that_exist() -> None:
    requested = {
        (where, name) for where, query in iterate_queries() for name in NAME.findall(query)
    }
    assert len(requested) > 40
    assert [(where, name) for where, name in requested if name not in SAMPLES] == []


def test_prometheus_queries_select_only_label_values_that_exist() -> None:
    wrong = []
    for where, query in iterate_queries():
        for name, braces in SELECTED.findall(query):
            labels = SAMPLES[name].labels
            for label, value in MATCHER.findall(braces):
                values = labels.get(label)
                if values is None and label not in BY_PROMETHEUS:
                    wrong.append(f"{where}: {name} has no label {label}")
                elif isinstance(values, tuple) and not any(
                    re.fullmatch(value, item) for item in values
                ):
                    wrong.append(f"{where}: no {label} of {name} is {value}")
    assert wrong == []


def test_prometheus_queries_group_only_by_labels_that_exist() -> None:
    wrong = [
        f"{where}: {label}"
        for where, query in iterate_queries()
        for group in re.findall(r"\bby \(([^)]*)\)", query)
        for label in map(str.strip, group.split(","))
        if label not in BY_PROMETHEUS
        and not any(label in SAMPLES[name].labels for name in NAME.findall(query))
    ]
    assert wrong == []


def test_prometheus_accepts_configuration_and_queries(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{n}", "expr": query} for n, (_, query) in enumerate(iterate_queries())
    ]
    queries = tmp_path / "queries.yaml"
    queries.write_text(json.dumps({"groups": [{"name": "all", "rules": rules}]}))
    config = ROOT / "docker/prometheus/prometheus.yaml"
    for words in (["rules", queries], ["config", "--syntax-only", config]):
        result = subprocess.run([promtool(), "check", *words], capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr


PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETTINGS: dict[str, Any] = PYPROJECT["tool"]["importlinter"]
PACKAGES = SETTINGS["root_packages"]


KINDS = {"forbidden": ForbiddenContract, "protected": ProtectedContract}


def find_contract(name: str) -> ForbiddenContract | ProtectedContract:
    """Return the import contract whose name begins with this text."""
    [actual] = [setting for setting in SETTINGS["contracts"] if setting["name"].startswith(name)]
    created = KINDS[actual["type"]]
    return created(actual["name"], {"root_packages": PACKAGES}, _convert_options(actual))


def _convert_options(values: dict[str, Any]) -> dict[str, Any]:
    """Return the options as import-linter gives them to a contract, with booleans as text."""
    return {
        key: str(value) if isinstance(value, bool) else value
        for key, value in values.items()
        if key not in ("name", "type")
    }


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    configuration.configure()
    return grimp.build_graph(*PACKAGES, include_external_packages=True, cache_dir=None)


@pytest.mark.parametrize(
    ("name", "importer", "imported"),
    [
        ("One policy", "history.timeline.values", "history.timeline.sources.tables"),
        ("One policy", "history.timeline.moments", "history.timeline.sources.old_service"),
        ("One policy", "history.api.views", "history.timeline.sources.archive"),
        (
            "One policy",
            "history.admin.components.search_results",
            "history.timeline.sources.tables",
        ),
        ("One policy", "annals.management.comparison", "history.timeline.sources.merged"),
        ("Sources know", "history.timeline.sources.tables", "history.policy.masking"),
        ("Sources know", "history.timeline.sources.tables", "history.timeline.reader"),
        ("Only addresses", "annals.access.journal.write", "history.api.errors"),
        ("Only addresses", "annals.operations.health", "history.api.errors"),
        ("Only addresses", "annals.access.oidc.bearer", "history.api.base_view"),
    ],
)
def test_import_contract_is_broken_when_a_forbidden_import_is_added(
    graph: grimp.ImportGraph, name: str, importer: str, imported: str
) -> None:
    assert find_contract(name).check(deepcopy(graph), verbose=False).kept
    around = deepcopy(graph)
    around.add_import(importer=importer, imported=imported)
    assert not find_contract(name).check(around, verbose=False).kept


@pytest.mark.parametrize("pattern", [r"\.unreleased\b", r"\bVersionRow(\._make)?\("])
def test_only_viewer_policy_reads_closed_answers_and_creates_version_row_objects(
    pattern: str,
) -> None:
    users = {
        path.relative_to(ROOT).as_posix()
        for package in ("annals", "history", "ingest")
        for path in (ROOT / package).rglob("*.py")
        if re.search(pattern, path.read_text().replace("class VersionRow(", ""))
    }
    assert users == {"history/policy/viewer_policy.py"}
