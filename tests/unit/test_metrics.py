"""The registers of metrics: complete, documented, and all that alerts and the dashboard ask for."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from annals import docs
from annals import metrics as annals_metrics
from history import metric
from history import metrics as history_metrics
from history.metric import Described, Kind, Open, Register
from ingest import metrics as ingest_metrics

ROOT = Path(__file__).parents[2]
APPS = {"annals": annals_metrics, "history": history_metrics, "ingest": ingest_metrics}
REGISTERS = [module.REGISTER for module in APPS.values()]
ALL = {name: each for register in REGISTERS for name, each in register.described.items()}
SAMPLES = {sample: each for each in ALL.values() for sample in each.samples()}
NAME = re.compile(r"\bannals_\w+")
# A name with what stands between its braces.
SELECTED = re.compile(r"\b(annals_\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)\s*(?:=~?|!=|!~)\s*"([^"]*)"')
# Roles of the database, and a module in an example.
NO_METRICS = {"annals_consumer", "annals_web", "annals_rules"}
BY_PROMETHEUS = {"job", "instance", "le"}


def sources() -> Iterator[tuple[Path, ast.Module]]:
    for app in APPS:
        for path in sorted((ROOT / app).rglob("*.py")):
            yield path, ast.parse(path.read_text())


def expressions() -> Iterator[tuple[str, str]]:
    """The queries of the alerts and of the dashboard, each with its place."""
    rules = yaml.safe_load((ROOT / "docker/prometheus/rules.yaml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            yield rule.get("alert", rule.get("record")), rule["expr"]
    board = json.loads((ROOT / "docker/grafana/dashboards/annals.json").read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            yield f"panel {panel['title']}", target["expr"]


def test_metrics_are_made_by_the_registers_only() -> None:
    makers = {*("Counter", "Gauge", "Histogram", "Summary", "Info", "Enum")}
    others = [
        f"{path.relative_to(ROOT)}: {alias.name}"
        for path, tree in sources()
        if path != Path(metric.__file__)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("prometheus_client")
        for alias in node.names
        if alias.name in makers or alias.name.endswith("MetricFamily")
    ]
    assert others == []


def test_every_metric_is_used() -> None:
    """A name of a register that no code mentions is a metric that always stays at its start."""
    named = {
        f"{app}.{target.id}"
        for app, module in APPS.items()
        for node in ast.parse(Path(str(module.__file__)).read_text()).body
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
        and isinstance(node.value.func, ast.Attribute)
        and ast.unparse(node.value.func.value) == "REGISTER"
    }
    assert len(named) == len(ALL)
    used = set()
    for path, tree in sources():
        app = path.relative_to(ROOT).parts[0]
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module in APPS:
                app = node.module if any(a.name == "metrics" for a in node.names) else app
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "metrics":
                used.add(f"{app}.{node.attr}")
            elif isinstance(node, ast.Name) and path == Path(str(APPS[app].__file__)):
                used.update([f"{app}.{node.id}"] if isinstance(node.ctx, ast.Load) else [])
    assert named - used == set()


def test_names_are_in_one_register() -> None:
    twice = Counter(name for register in REGISTERS for name in register.described)
    assert {name for name, times in twice.items() if times > 1} == set()


@pytest.mark.parametrize("described", ALL.values(), ids=lambda each: each.name)
def test_each_says_what_it_is(described: Described) -> None:
    assert described.name.startswith("annals_")
    assert described.unit
    assert described.text.endswith(".")
    for values in described.labels.values():
        assert values.what if isinstance(values, Open) else len(set(values)) == len(values) > 0


def test_the_page_has_each() -> None:
    page = docs.metrics_page()
    assert re.findall(r"^\| `(annals_\w+)` \|", page, re.MULTILINE) == list(ALL)
    assert (ROOT / "docs/metrics.md").read_text() == page


def test_pages_name_only_metrics_that_exist() -> None:
    pages = {
        page: set(NAME.findall(re.sub(r"annals_\w*\*", "", page.read_text())))
        for page in (ROOT / "docs").rglob("*.md")
    }
    assert sum(map(len, pages.values())) > len(ALL)
    wrong = {page.name: found - {*SAMPLES, *ALL, *NO_METRICS} for page, found in pages.items()}
    assert {name: found for name, found in wrong.items() if found} == {}


def test_queries_ask_only_for_metrics_that_exist() -> None:
    asked = {(where, name) for where, query in expressions() for name in NAME.findall(query)}
    assert len(asked) > 40
    assert [(where, name) for where, name in asked if name not in SAMPLES] == []


def test_queries_select_only_by_labels_and_values_that_exist() -> None:
    wrong = []
    for where, query in expressions():
        for name, braces in SELECTED.findall(query):
            labels = SAMPLES[name].labels
            for label, value in MATCHER.findall(braces):
                values = labels.get(label)
                if values is None and label not in BY_PROMETHEUS:
                    wrong.append(f"{where}: {name} has no label {label}")
                elif isinstance(values, tuple) and not any(
                    re.fullmatch(value, each) for each in values
                ):
                    wrong.append(f"{where}: no {label} of {name} is {value}")
    assert wrong == []


def test_queries_group_only_by_labels_that_exist() -> None:
    wrong = [
        f"{where}: {label}"
        for where, query in expressions()
        for group in re.findall(r"\bby \(([^)]*)\)", query)
        for label in map(str.strip, group.split(","))
        if label not in BY_PROMETHEUS
        and not any(label in SAMPLES[name].labels for name in NAME.findall(query))
    ]
    assert wrong == []


def test_what_a_process_gives_is_compared_with_the_register() -> None:
    register = Register("a test")
    make = register.collected_gauge("annals_x", "things", "Things.", colour=("red", "blue"))
    right, wrong = make(), make()
    right.add_metric(["red"], 1)
    wrong.add_metric(["green"], 1)
    other = GaugeMetricFamily("annals_x", "Things.", labels=["size"])
    other.add_metric(["red"], 1)
    unknown = CounterMetricFamily("annals_x_total", "Things.")
    foreign = GaugeMetricFamily("python_info", "Python.", value=1)
    assert list(metric.faults([right, foreign], [register])) == []
    assert list(metric.faults([wrong, other, unknown], [register])) == [
        "annals_x: the label colour has the value 'green'",
        "annals_x: has the labels ['size']",
        "annals_x_total: no counter of a register",
    ]


def test_a_register_takes_no_name_twice_and_no_wrong_one() -> None:
    register = Register("a test")
    register.collected_gauge("annals_x", "things", "Things.")
    for name in ("annals_x", "annals_x_total"):
        with pytest.raises(ValueError, match=name):
            register.collected_gauge(name, "things", "Things.")
    assert [each.kind for each in register.described.values()] == [Kind.GAUGE]
